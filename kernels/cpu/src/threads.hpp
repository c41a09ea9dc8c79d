// A persistent pool of threads that go through a region of code together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace radixrt::cpu {

// A half-open range of a loop's items; empty when the loop is done.
struct Chunk {
    int64_t begin;
    int64_t end;
    explicit operator bool() const { return begin < end; }
};

class ThreadPool;

// One thread's part in a region. All workers of a region call `first`, `next` and `barrier` in the same order.
class Worker {
public:
    Worker(ThreadPool& pool, int index) : index(index), pool_(pool) {}

    const int index;
    int count() const;

    // Shares the items 0 ... n - 1 out in chunks of `grain` to whichever worker is free:
    //     for (Chunk c = worker.first(n, grain); c; c = worker.next()) ...
    // No worker waits at the end; what needs the whole loop's results calls `barrier` first.
    Chunk first(int64_t n, int64_t grain);
    Chunk next();

    // Returns when every worker has called it; what each wrote before is then seen by all.
    void barrier();

private:
    ThreadPool& pool_;
    uint64_t loop_ = 0;
    int64_t items_ = 0;
    int64_t grain_ = 1;
};

class ThreadPool {
public:
    // `threads` counts the caller of `run`.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return size_; }

    // Calls `region(worker)` on every thread, the caller's too, and returns when all have left it.
    // One region at a time: calls from several threads wait for each other. `region` must not throw.
    void run(const std::function<void(Worker&)>& region);

private:
    friend class Worker;
    static constexpr int kLoops = 4;  // loops whose counters are in use at once: at most two

    void serve(int index);
    void arrive();

    const int size_;
    std::vector<std::thread> threads_;
    std::mutex calls_;

    std::mutex mutex_;
    std::condition_variable start_;
    std::atomic<uint64_t> region_number_{0};
    const std::function<void(Worker&)>* region_ = nullptr;
    bool closing_ = false;

    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint64_t> phase_{0};
    struct alignas(64) Counter {
        std::atomic<int64_t> next{0};
    };
    Counter counters_[kLoops];
};

}  // namespace radixrt::cpu
