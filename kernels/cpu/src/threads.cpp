#include "threads.hpp"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <stdexcept>

namespace radixrt::cpu {

namespace {

using Clock = Crowding::Clock;
using Time = Crowding::Time;

constexpr int kItemBits = 40;
constexpr uint64_t kItemMask = (uint64_t{1} << kItemBits) - 1;

// How long a thread spins before it sleeps: a little longer than a wake-up takes, so that it never loses more than
// about twice what the better choice would have cost.
constexpr Time kSpin = std::chrono::microseconds(50);
constexpr int kLooksAtOnce = 64;  // between two looks at the clock

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Whether `value` is soon no longer `old`; what was written before the change is then seen.
bool changes_within(const std::atomic<int>& value, int old, Time limit) {
    Clock::time_point end{};
    for (;;) {
        for (int look = 0; look < kLooksAtOnce; ++look) {
            if (value.load(std::memory_order_acquire) != old) return true;
            pause();
        }
        auto now = Clock::now();
        if (end == Clock::time_point{}) end = now + limit;
        if (now >= end) return false;
    }
}

void wait_for_change(const std::atomic<int>& value, int old) {
    if (!changes_within(value, old, kSpin)) value.wait(old, std::memory_order_acquire);
}

void change(std::atomic<int>& value) {
    value.fetch_add(1, std::memory_order_seq_cst);
    value.notify_all();  // no system call unless somebody sleeps
}

// How long a thread has run on a processor. Where the system does not tell, it is taken to run all the time.
Time time_on_processor(std::thread& thread) {
#if defined(__linux__)
    clockid_t clock;
    timespec time;
    if (pthread_getcpuclockid(thread.native_handle(), &clock) == 0 && clock_gettime(clock, &time) == 0)
        return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
#endif
    return Clock::now().time_since_epoch();
}

}  // namespace

Chunk Worker::first(int64_t n, int64_t grain) {
    ++loop_;
    items_ = n;
    grain_ = grain;
    return next();
}

Chunk Worker::next() {
    uint64_t cursor = pool_.cursor_.load(std::memory_order_relaxed);
    for (;;) {
        uint64_t loop = cursor >> kItemBits;
        if (loop > loop_) return {0, 0};
        int64_t begin = loop == loop_ ? int64_t(cursor & kItemMask) : 0;
        if (begin >= items_) return {0, 0};
        int64_t end = grain_ < items_ - begin ? begin + grain_ : items_;
        if (pool_.cursor_.compare_exchange_weak(cursor, loop_ << kItemBits | uint64_t(end), std::memory_order_relaxed))
            return {begin, end};
    }
}

void Worker::barrier() {
    if (count_ == 1) return;
    int passed = pool_.passed_.load(std::memory_order_relaxed);
    if (index > 0) pool_.seats_[index - 1].arrived.store(passed + 1, std::memory_order_relaxed);
    if (pool_.arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
        pool_.arrived_.store(0, std::memory_order_relaxed);
        change(pool_.passed_);
    } else if (index == 0) {
        pool_.wait_at_barrier(passed);
    } else {
        wait_for_change(pool_.passed_, passed);
    }
}

// The caller's wait. It takes the time of a wait that is not over at once, and how long the workers that are waited for
// ran meanwhile: one that computes is worth waiting for, one that has lost its core is not.
void ThreadPool::wait_at_barrier(int passed) {
    constexpr Time at_once = std::chrono::microseconds(5);
    if (changes_within(passed_, passed, at_once)) return;
    struct Late {
        Seat* seat;
        Time ran;
    };
    constexpr int watched = 64;
    Late late[watched];
    int count = 0;
    for (int i = 0; i < members_ - 1 && count < watched; ++i)
        if (seats_[i].arrived.load(std::memory_order_relaxed) != passed + 1)
            late[count++] = {&seats_[i], time_on_processor(seats_[i].thread)};
    auto begin = Clock::now();
    wait_for_change(passed_, passed);
    Time waited = Clock::now() - begin, longest{};
    int missing = 0;
    for (int i = 0; i < count; ++i) {
        Time idle = waited - (time_on_processor(late[i].seat->thread) - late[i].ran);
        if (idle > waited / 2) ++missing;
        longest = std::max(longest, idle);
    }
    lost_ += longest;
    missing_ = std::max(missing_, missing);
}

ThreadPool::ThreadPool(int threads) : size_(threads), process_(getpid()), crowding_(threads) {
    if (threads < 1) throw std::invalid_argument("threads must be at least 1");
    seats_.reset(new Seat[threads - 1]);
    for (int index = 1; index < threads; ++index) {
        Seat& seat = seats_[index - 1];
        seat.thread = std::thread([this, &seat, index] { serve(seat, index); });
    }
}

ThreadPool::~ThreadPool() {
    if (process_ != getpid()) leave_threads_of_parent();
    region_ = nullptr;
    for (int i = 0; i < size_ - 1; ++i) change(seats_[i].begun);
    for (int i = 0; i < size_ - 1; ++i) seats_[i].thread.join();
}

void ThreadPool::run(const std::function<void(Worker&)>& region) {
    std::lock_guard one_at_a_time(calls_);
    if (process_ != getpid()) leave_threads_of_parent();
    auto begin = Clock::now();
    region_ = &region;
    members_ = crowding_.members(begin);
    cursor_.store(0, std::memory_order_relaxed);
    for (int i = 0; i < members_ - 1; ++i) change(seats_[i].begun);
    Worker self(*this, 0, members_);
    region(self);
    self.barrier();
    if (members_ > 1) {
        auto end = Clock::now();
        crowding_.learn(end - begin, lost_, missing_, end);
        lost_ = {};
        missing_ = 0;
    }
}

void ThreadPool::serve(Seat& seat, int index) {
    for (int begun = 0;; ++begun) {
        wait_for_change(seat.begun, begun);
        if (!region_) return;
        Worker self(*this, index, members_);
        (*region_)(self);
        self.barrier();
    }
}

void ThreadPool::leave_threads_of_parent() {
    for (int i = 0; i < size_ - 1; ++i) seats_[i].thread.detach();
    size_ = 1;
    crowding_ = Crowding(1);
    process_ = getpid();
}

}  // namespace radixrt::cpu
