#include "threads.hpp"

namespace radixrt::cpu {

namespace {

// How long a thread spins before it sleeps or gives its core away. A wake-up costs about 30 us, as long as a hundred
// of the barriers inside a step; between steps nobody should burn a core.
constexpr int kSpins = 2000;

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

int Worker::count() const { return pool_.size_; }

Chunk Worker::first(int64_t n, int64_t grain) {
    ++loop_;
    items_ = n;
    grain_ = grain;
    return next();
}

Chunk Worker::next() {
    auto& counter = pool_.counters_[loop_ % ThreadPool::kLoops].next;
    int64_t begin = counter.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= items_) return {0, 0};
    return {begin, begin + grain_ < items_ ? begin + grain_ : items_};
}

void Worker::barrier() {
    uint64_t phase = pool_.phase_.load(std::memory_order_acquire);
    if (pool_.arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == pool_.size_) {
        // Nobody is inside a loop now: the next ones begin at zero.
        for (auto& counter : pool_.counters_) counter.next.store(0, std::memory_order_relaxed);
        pool_.arrived_.store(0, std::memory_order_relaxed);
        pool_.phase_.store(phase + 1, std::memory_order_release);
        return;
    }
    for (int spins = 0; pool_.phase_.load(std::memory_order_acquire) == phase; ++spins) {
        if (spins < kSpins) {
            pause();
        } else {
            std::this_thread::yield();
        }
    }
}

ThreadPool::ThreadPool(int threads) : size_(threads) {
    for (int index = 1; index < threads; ++index) threads_.emplace_back([this, index] { serve(index); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
        region_number_.fetch_add(1);
    }
    start_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void ThreadPool::run(const std::function<void(Worker&)>& region) {
    std::lock_guard one_at_a_time(calls_);
    {
        std::lock_guard lock(mutex_);
        region_ = &region;
        region_number_.fetch_add(1, std::memory_order_release);
    }
    start_.notify_all();
    Worker self(*this, 0);
    region(self);
    self.barrier();
}

void ThreadPool::serve(int index) {
    for (uint64_t seen = 0;;) {
        for (int spins = 0; spins < kSpins && region_number_.load(std::memory_order_acquire) == seen; ++spins) pause();
        const std::function<void(Worker&)>* region;
        {
            std::unique_lock lock(mutex_);
            start_.wait(lock, [&] { return region_number_.load(std::memory_order_relaxed) != seen; });
            seen = region_number_.load(std::memory_order_relaxed);
            if (closing_) return;
            region = region_;
        }
        Worker self(*this, index);
        (*region)(self);
        self.barrier();
    }
}

}  // namespace radixrt::cpu
