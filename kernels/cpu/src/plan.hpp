// What all layers of a step share: which query rows read which blocks of keys, made once a step.
//
// Rows of a step (one sequence's new tokens each) are put in the order of their page tables, so that those which share
// a prefix are neighbours. Where several queries read the same pages of a block, one item reads them for all. A row of
// many tokens is cut into items that go over all their blocks; other rows are cut by blocks as well, whose partial
// results are merged in order. None of this changes a bit of the result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention.hpp"

namespace radixrt::cpu {

// `BatchLayout` of kernels/interface.py; the arrays must outlive the plan.
struct StepLayout {
    const int32_t* query_starts;     // [rows + 1]
    const int32_t* context_lengths;  // [rows]
    const int32_t* page_starts;      // [rows + 1]
    const int32_t* pages;
    const int32_t* positions;  // [tokens]
    const int64_t* slots;      // [tokens]
    int64_t rows;
    int64_t tokens;
    int64_t page_size;
};

// The items of one kind of attention layer.
class AttentionPlan {
public:
    AttentionPlan(const StepLayout& layout, int workers, bool share, int64_t heads, int64_t kv_heads, int64_t window);

    bool fits(int64_t heads, int64_t kv_heads, int64_t window) const {
        return heads == group_ * kv_heads && kv_heads == kv_heads_ && window == window_;
    }
    AttentionWork work();

private:
    struct Row {
        int32_t index;
        int32_t used_pages;
    };

    void order_rows();
    int64_t common_keys(const Row& a, const Row& b) const;
    void add_queries(const Row& row, bool by_block);
    void add_long_row(const Row& row);
    void add_blocks();
    void add_group(int64_t first, int64_t end, int64_t block);
    void add_tiles(int64_t first_row, int64_t end_row, int64_t tile_rows, int64_t block);
    int64_t first_block(int64_t position) const;

    const StepLayout layout_;
    const int64_t workers_;
    const bool share_;
    const int64_t group_;
    const int64_t kv_heads_;
    const int64_t window_;
    int64_t item_rows_ = kItemRows;
    int64_t partials_ = 0;
    std::vector<Row> rows_;  // those cut by blocks, in the order of their tables
    std::vector<Row> long_rows_;
    std::vector<Query> queries_;
    std::vector<int64_t> common_;  // [queries cut by blocks]: keys from position 0 on that a query shares with the one
                                   // before it
    std::vector<RowTile> tiles_;
    std::vector<Item> items_;
    std::vector<int32_t> missing_;
};

class Plan {
public:
    // Without `share`, rows never share a tile: for comparison.
    Plan(const StepLayout& layout, int workers, bool share) : layout(layout), workers_(workers), share_(share) {}
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;

    // Made at the first call for each kind; not to be called from several threads at once.
    AttentionWork attention(int64_t heads, int64_t kv_heads, int64_t window);

    const StepLayout layout;

private:
    const int workers_;
    const bool share_;
    std::vector<std::unique_ptr<AttentionPlan>> kinds_;
};

// Memory that attention works in, kept from step to step.
class AttentionScratch {
public:
    // Fills in the addresses, after everything else in `args`.
    void lend(AttentionArgs& args, int workers);

private:
    static float* grown(std::unique_ptr<float[]>& memory, int64_t& size, int64_t wanted);

    std::unique_ptr<float[]> partials_, scratch_;
    int64_t partials_size_ = 0, scratch_size_ = 0;
};

}  // namespace radixrt::cpu
