// How a call that takes long hears from another thread that it should come back.
#pragma once

#include <atomic>
#include <exception>

namespace boxqte {

/// Thrown out of the middle of a count, which is then worth nothing.
struct Halted : std::exception {};

class Halt {
 public:
  void set() { set_.store(true, std::memory_order_relaxed); }
  bool is_set() const { return set_.load(std::memory_order_relaxed); }
  /// To be called every few milliseconds at the latest.
  void check() const {
    if (is_set()) throw Halted{};
  }

 private:
  std::atomic<bool> set_{false};
};

}  // namespace boxqte
