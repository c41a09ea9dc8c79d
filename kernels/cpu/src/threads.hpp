// A persistent pool of threads that go through a region of code together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "crowding.hpp"

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
    Worker(ThreadPool& pool, int index, int count) : index(index), pool_(pool), count_(count) {}

    const int index;
    int count() const { return count_; }  // workers of this region: at most the pool's threads

    // Shares the items 0 ... n - 1 out in chunks of `grain` to whichever worker is free:
    //     for (Chunk c = worker.first(n, grain); c; c = worker.next()) ...
    // No worker waits at the end; what needs the whole loop's results calls `barrier` first. n < 2^40.
    Chunk first(int64_t n, int64_t grain);
    Chunk next();

    // Returns when every worker has called it; what each wrote before is then seen by all.
    void barrier();

private:
    ThreadPool& pool_;
    const int count_;
    uint64_t loop_ = 0;
    int64_t items_ = 0;
    int64_t grain_ = 1;
};

// Threads wait in two ways: they spin for some microseconds, since a barrier between spinning threads costs a
// thousandth of a wake-up, then they sleep. A sleeping thread burns nothing and leaves its core to others: to another
// process, or to the very worker that it waits for, which lost its own core to one.
//
// A child made by fork has only the thread that called it: regions run on that one alone there. A fork while another
// thread is inside `run` leaves the child a lock that nobody opens.
class ThreadPool {
public:
    // `threads` counts the caller of `run`. Throws std::invalid_argument below one.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return size_; }

    // Calls `region(worker)` on every thread, the caller's too, and returns when all have left it. Where other processes
    // keep threads from running, fewer of them take part (see crowding.hpp).
    // One region at a time: calls from several threads wait for each other. `region` must neither throw nor call `run`.
    void run(const std::function<void(Worker&)>& region);

private:
    friend class Worker;

    // What belongs to a thread besides the caller. On a cache line of its own, as is all that one thread watches while
    // another writes.
    struct alignas(64) Seat {
        std::atomic<int> begun{0};    // regions that this thread was to take part in
        std::atomic<int> arrived{0};  // the barrier that it came to last, counted from one
        std::thread thread;
    };

    void serve(Seat& seat, int index);
    void wait_at_barrier(int passed);
    void leave_threads_of_parent();

    int size_;
    int process_;
    std::unique_ptr<Seat[]> seats_;
    std::mutex calls_;

    const std::function<void(Worker&)>* region_ = nullptr;  // null: the pool closes
    int members_ = 1;                                       // workers of this region
    Crowding crowding_;
    Crowding::Time lost_{};  // waiting in this region for workers that did not run
    int missing_ = 0;        // so many at once

    alignas(64) std::atomic<int> arrived_{0};  // workers at the barrier
    alignas(64) std::atomic<int> passed_{0};   // barriers since the pool was made
    // The loop being shared out, counted from the region's start, above the number of its items that are taken. A
    // worker that comes to a loop behind the others finds a higher number: nothing of that loop is left.
    alignas(64) std::atomic<uint64_t> cursor_{0};
};

}  // namespace radixrt::cpu
