// How many threads of a pool are worth waking while other processes want the cores too.
#pragma once

#include <algorithm>
#include <chrono>

namespace radixrt::cpu {

// Workers that meet at a barrier go at the pace of the one whose core was taken away, and all of them lose the time that
// it is gone: several milliseconds, as often as another process gets its turn. One worker fewer than there are free cores
// is better than one more. So after a region in which the caller waited long for workers that did not run, those stay
// asleep for a while; for longer, if they were missing again at the next attempt.
class Crowding {
public:
    using Clock = std::chrono::steady_clock;
    using Time = std::chrono::nanoseconds;

    explicit Crowding(int threads) : threads_(threads), members_(threads) {}

    // How many workers the region that begins now should have.
    int members(Clock::time_point now) {
        if (members_ < threads_ && now >= retry_) {
            members_ = threads_;
            tried_ = now;
        }
        return members_;
    }

    // A region ended: for `lost` of the time that it took, the caller waited for workers that did not run, `missing` of
    // them at once.
    void learn(Time took, Time lost, int missing, Clock::time_point now) {
        if (lost > kNoticeable && lost > took / 5) {
            members_ = std::max(1, members_ - std::max(1, missing));
            retry_ = now + pause_;
            pause_ = std::min(2 * pause_, kLongest);
        } else if (members_ == threads_ && now - tried_ > 2 * pause_) {
            pause_ = kShortest;
        }
    }

private:
    static constexpr Time kNoticeable = std::chrono::microseconds(100);  // three times what waking up takes
    static constexpr Time kShortest = std::chrono::milliseconds(5);
    static constexpr Time kLongest = std::chrono::milliseconds(320);

    int threads_;
    int members_;
    Time pause_ = kShortest;
    Clock::time_point retry_{};
    Clock::time_point tried_{};
};

}  // namespace radixrt::cpu
