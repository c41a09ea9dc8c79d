// The thread pool: run plainly by test_programs.py, under ThreadSanitizer by `make sanitize`.
#include "threads.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace radixrt::cpu;
using namespace std::chrono_literals;

static void every_item_is_handed_out_once(int threads) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 7, 100, 1000})
        for (int64_t grain : {1, 3, 64, 5000}) {
            std::vector<int> taken(n);  // not atomic: two workers with one item are a race
            pool.run([&](Worker& worker) {
                for (Chunk c = worker.first(n, grain); c; c = worker.next())
                    for (int64_t i = c.begin; i < c.end; ++i) ++taken[i];
            });
            for (int count : taken) CHECK(count == 1);
        }
}

static void many_loops_without_a_barrier_between_them_are_kept_apart(int threads) {
    ThreadPool pool(threads);
    constexpr int loops = 50, items = 37;
    std::vector<int> taken(loops * items);
    pool.run([&](Worker& worker) {
        for (int loop = 0; loop < loops; ++loop)
            for (Chunk c = worker.first(items, 2); c; c = worker.next())
                for (int64_t i = c.begin; i < c.end; ++i) ++taken[loop * items + i];
    });
    for (int count : taken) CHECK(count == 1);
}

static void a_barrier_shows_what_the_others_wrote(int threads) {
    ThreadPool pool(threads);
    constexpr int items = 64, rounds = 200;
    std::vector<int> from(items, 1), to(items);
    pool.run([&](Worker& worker) {
        int *read = from.data(), *written = to.data();
        for (int round = 0; round < rounds; ++round) {
            for (Chunk c = worker.first(items, 1); c; c = worker.next())
                for (int64_t i = c.begin; i < c.end; ++i) written[i] = read[(i + 1) % items] + 1;
            worker.barrier();
            std::swap(read, written);
        }
    });
    for (int value : from) CHECK(value == rounds + 1);
}

static void callers_wait_for_each_other(int threads) {
    ThreadPool pool(threads);
    int inside = 0;  // not atomic: two regions at once are a race
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller)
        callers.emplace_back([&] {
            for (int i = 0; i < 50; ++i)
                pool.run([&](Worker& worker) {
                    if (worker.index == 0) ++inside;
                    worker.barrier();
                });
        });
    for (auto& caller : callers) caller.join();
    CHECK(inside == 200);
}

static void sleeping_threads_wake_up(int threads) {
    ThreadPool pool(threads);
    int sum = 0;
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(1ms);  // twenty times as long as they spin
        pool.run([&](Worker& worker) {
            for (Chunk c = worker.first(1, 1); c; c = worker.next()) {
                std::this_thread::sleep_for(300us);
                ++sum;
            }
        });
    }
    CHECK(sum == 10);
}

static void a_pool_closes_whether_used_or_not(int threads) {
    for (int i = 0; i < 20; ++i) {
        ThreadPool pool(threads);
        if (i % 2) pool.run([](Worker& worker) { worker.barrier(); });
        CHECK(pool.size() == threads);
    }
}

static void workers_that_do_not_run_are_left_asleep_for_a_while() {
    Crowding crowding(8);
    Crowding::Clock::time_point now{};
    CHECK(crowding.members(now) == 8);
    crowding.learn(10ms, 90us, 1, now);  // as long as waking up may take
    crowding.learn(10ms, 1ms, 1, now);   // a small part of the region
    CHECK(crowding.members(now) == 8);
    crowding.learn(10ms, 4ms, 2, now);
    CHECK(crowding.members(now) == 6);
    crowding.learn(10ms, 4ms, 0, now);
    CHECK(crowding.members(now + 9ms) == 5);
    CHECK(crowding.members(now + 10ms) == 8);
}

static void the_next_attempt_comes_later_each_time_that_one_fails() {
    Crowding crowding(2);
    Crowding::Clock::time_point now{};
    Crowding::Time pause = 5ms;
    for (int i = 0; i < 10; ++i) {
        CHECK(crowding.members(now) == 2);
        crowding.learn(2ms, 1ms, 1, now);
        CHECK(crowding.members(now + pause - 1us) == 1);
        now += pause;
        pause = std::min<Crowding::Time>(2 * pause, 320ms);
    }
    CHECK(crowding.members(now) == 2);
    crowding.learn(2ms, 0ms, 0, now + 1s);  // a long time without trouble: it begins again
    crowding.learn(2ms, 1ms, 1, now + 1s);
    CHECK(crowding.members(now + 1s + 5ms) == 2);
}

int main() {
    for (int threads : {1, 2, 3, 8}) {
        every_item_is_handed_out_once(threads);
        many_loops_without_a_barrier_between_them_are_kept_apart(threads);
        a_barrier_shows_what_the_others_wrote(threads);
        callers_wait_for_each_other(threads);
        sleeping_threads_wake_up(threads);
        a_pool_closes_whether_used_or_not(threads);
    }
    workers_that_do_not_run_are_left_asleep_for_a_while();
    the_next_attempt_comes_later_each_time_that_one_fails();
    return failures > 0;
}
