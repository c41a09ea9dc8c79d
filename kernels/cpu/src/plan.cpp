#include "plan.hpp"

#include <algorithm>
#include <limits>

namespace radixrt::cpu {

namespace {

constexpr int64_t kAll = std::numeric_limits<int32_t>::max();  // keys that queries of one row have in common

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

AttentionPlan::AttentionPlan(const StepLayout& layout, int workers, bool share, int64_t heads, int64_t kv_heads,
                             int64_t window)
    : layout_(layout), workers_(workers), share_(share), group_(heads / kv_heads), kv_heads_(kv_heads),
      window_(window) {
    order_rows();
    queries_.reserve(layout.tokens);
    for (size_t i = 0; i < rows_.size(); ++i) {
        common_.push_back(i == 0 ? 0 : common_keys(rows_[i - 1], rows_[i]));
        add_queries(rows_[i], true);
    }
    for (const Row& row : long_rows_) add_long_row(row);
    add_blocks();
}

AttentionWork AttentionPlan::work() {
    return {queries_.data(),         tiles_.data(),   items_.data(), (int64_t)items_.size(),
            layout_.pages, missing_.data(), partials_,     window_};
}

int64_t AttentionPlan::first_block(int64_t position) const {
    return std::max<int64_t>(position - window_ + 1, 0) / kBlockKeys;
}

void AttentionPlan::order_rows() {
    for (int64_t index = 0; index < layout_.rows; ++index) {
        Row row{(int32_t)index, (int32_t)divide_up(layout_.context_lengths[index], layout_.page_size)};
        int64_t query_rows = (layout_.query_starts[index + 1] - layout_.query_starts[index]) * group_;
        // A row that makes items enough for all workers needs no cut by blocks.
        bool enough = divide_up(query_rows, kItemRows) * kv_heads_ >= 4 * workers_;
        (enough ? long_rows_ : rows_).push_back(row);
    }
    if (!share_) return;
    std::sort(rows_.begin(), rows_.end(), [this](const Row& a, const Row& b) {
        const int32_t* x = layout_.pages + layout_.page_starts[a.index];
        const int32_t* y = layout_.pages + layout_.page_starts[b.index];
        return std::lexicographical_compare(x, x + a.used_pages, y, y + b.used_pages);
    });
}

// Keys from position 0 on that lie in the same pages for both rows.
int64_t AttentionPlan::common_keys(const Row& a, const Row& b) const {
    if (!share_) return 0;
    const int32_t* x = layout_.pages + layout_.page_starts[a.index];
    const int32_t* y = layout_.pages + layout_.page_starts[b.index];
    return (std::mismatch(x, x + std::min(a.used_pages, b.used_pages), y).first - x) * layout_.page_size;
}

void AttentionPlan::add_queries(const Row& row, bool by_block) {
    for (int32_t token = layout_.query_starts[row.index]; token < layout_.query_starts[row.index + 1]; ++token) {
        int32_t position = layout_.positions[token];
        int64_t blocks = position / kBlockKeys + 1 - first_block(position);
        bool partial = by_block && blocks > 1;
        queries_.push_back({token, position, layout_.page_starts[row.index], partial ? (int32_t)partials_ : -1});
        if (by_block) {
            if (partial) partials_ += blocks;
            missing_.insert(missing_.end(), kv_heads_, (int32_t)(blocks * group_));
        }
    }
    if (by_block) common_.resize(queries_.size(), kAll);
}

// Later tokens see more: they come first, so that what is left for last is small.
void AttentionPlan::add_long_row(const Row& row) {
    int64_t begin = (int64_t)queries_.size() * group_;
    add_queries(row, false);
    for (int64_t end = (int64_t)queries_.size() * group_; end > begin;) {
        int64_t start = std::max(begin, begin + (end - begin - 1) / kItemRows * kItemRows);
        Item item{(int32_t)first_block(queries_[start / group_].position),
                  queries_[(end - 1) / group_].position / kBlockKeys + 1, (int32_t)tiles_.size(), 0};
        for (int64_t first = start; first < end; first += kTileRows)
            tiles_.push_back({(int32_t)first, (int32_t)std::min<int64_t>(kTileRows, end - first), kBlockTiles});
        item.end_tile = (int32_t)tiles_.size();
        items_.push_back(item);
        end = start;
    }
}

void AttentionPlan::add_blocks() {
    int64_t queries = (int64_t)common_.size(), first = std::numeric_limits<int64_t>::max(), last = -1, rows = 0;
    for (int64_t i = 0; i < queries; ++i) {
        int64_t begin = first_block(queries_[i].position), end = queries_[i].position / kBlockKeys;
        first = std::min(first, begin);
        last = std::max(last, end);
        rows += (end + 1 - begin) * group_;
    }
    // Few rows, many workers: smaller items, so that all have work.
    int64_t fair = rows * kv_heads_ / (workers_ * 8) / kTileRows * kTileRows;
    item_rows_ = std::clamp<int64_t>(fair, kTileRows, kItemRows);
    for (int64_t block = last; block >= first; --block) {
        int64_t start = -1;  // of the group, if there is one
        for (int64_t i = 0; i < queries; ++i) {
            bool sees = block >= first_block(queries_[i].position) && block <= queries_[i].position / kBlockKeys;
            bool joins = sees && start >= 0 && common_[i] - block * kBlockKeys >= kTileKeys;
            if (start >= 0 && !joins) {
                add_group(start, i, block);
                start = -1;
            }
            if (sees && start < 0) start = i;
        }
        if (start >= 0) add_group(start, queries, block);
    }
}

// Queries that have at least one tile of keys of the block in common, each with the one before it.
void AttentionPlan::add_group(int64_t first, int64_t end, int64_t block) {
    bool one_table = std::all_of(common_.begin() + first + 1, common_.begin() + end,
                                 [](int64_t common) { return common == kAll; });
    // A query's heads stay in one tile where they fit: its own keys are then read once.
    int64_t tile_rows = one_table || group_ > kTileRows ? kTileRows : kTileRows / group_ * group_;
    int64_t item_rows = std::max<int64_t>(1, item_rows_ / tile_rows) * tile_rows;
    for (int64_t row = first * group_; row < end * group_; row += item_rows) {
        Item item{(int32_t)block, (int32_t)block + 1, (int32_t)tiles_.size(), 0};
        add_tiles(row, std::min(row + item_rows, end * group_), tile_rows, block);
        item.end_tile = (int32_t)tiles_.size();
        items_.push_back(item);
    }
}

void AttentionPlan::add_tiles(int64_t first_row, int64_t end_row, int64_t tile_rows, int64_t block) {
    for (int64_t row = first_row; row < end_row; row += tile_rows) {
        int64_t rows = std::min(tile_rows, end_row - row), shared = kBlockTiles;
        for (int64_t query = row / group_ + 1; query <= (row + rows - 1) / group_; ++query)
            shared = std::min(shared, std::max<int64_t>(0, common_[query] - block * kBlockKeys) / kTileKeys);
        tiles_.push_back({(int32_t)row, (int32_t)rows, (int32_t)shared});
    }
}

AttentionWork Plan::attention(int64_t heads, int64_t kv_heads, int64_t window) {
    for (auto& kind : kinds_)
        if (kind->fits(heads, kv_heads, window)) return kind->work();
    kinds_.push_back(std::make_unique<AttentionPlan>(layout, workers_, share_, heads, kv_heads, window));
    return kinds_.back()->work();
}

void AttentionScratch::lend(AttentionArgs& args, int workers) {
    args.partials = grown(partials_, partials_size_, partial_floats(args));
    args.scratch = grown(scratch_, scratch_size_, workers * scratch_floats(args.pool));
}

float* AttentionScratch::grown(std::unique_ptr<float[]>& memory, int64_t& size, int64_t wanted) {
    if (wanted > size) {
        memory.reset(new float[wanted + 16]);
        size = wanted;
    }
    return (float*)(((uintptr_t)memory.get() + 63) / 64 * 64);
}

}  // namespace radixrt::cpu
