// Chunks of work on several threads. The caller waits, and looks up now and
// then whether it should stop.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace boxqte {

/// Call work(chunk) for all chunks. `poll` is called every 50 ms and may throw:
/// then `halt` is set, and the work should end soon.
inline void in_threads(int workers, std::size_t n_chunks, std::atomic<bool>& halt, const std::function<void()>& poll,
                       const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::condition_variable ended;
  std::exception_ptr error;
  std::size_t running = std::min<std::size_t>(workers < 1 ? 1 : static_cast<std::size_t>(workers), n_chunks);
  const auto serve = [&] {
    try {
      for (std::size_t i = next++; i < n_chunks && !halt.load(std::memory_order_relaxed); i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      halt = true;
    }
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_all();
  };
  std::vector<std::thread> threads;
  const std::size_t n = running;
  for (std::size_t i = 0; i < n; ++i) threads.emplace_back(serve);
  std::exception_ptr stopped;
  {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::milliseconds(50), [&] { return running == 0; })) {
      lock.unlock();
      try {
        if (!stopped) poll();
      } catch (...) {
        stopped = std::current_exception();
        halt = true;
      }
      lock.lock();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (stopped) std::rethrow_exception(stopped);
  if (error) std::rethrow_exception(error);
}

}  // namespace boxqte
