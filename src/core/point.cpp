#include "point.hpp"

#include <algorithm>
#include <stdexcept>

#include "threads.hpp"

namespace boxqte {

namespace {

constexpr std::size_t chunk_points = 128;

}  // namespace

/// A desk, for as long as a chunk takes.
class Points::Lent {
 public:
  explicit Lent(Points& points) : points_(points) {
    const std::lock_guard lock(points.mutex_);
    if (points.desks_.empty()) {
      desk_ = std::make_unique<Desk>(points);
    } else {
      desk_ = std::move(points.desks_.back());
      points.desks_.pop_back();
    }
  }
  ~Lent() {
    const std::lock_guard lock(points_.mutex_);
    points_.desks_.push_back(std::move(desk_));
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  Desk& desk() { return *desk_; }

 private:
  Points& points_;
  std::unique_ptr<Desk> desk_;
};

Points::Points(Forest forest, std::int64_t fuzz, int dense_limit, std::size_t mask_bytes)
    : forest_(std::move(forest)), fuzz_(fuzz), dense_limit_(std::clamp(dense_limit, 1, 1 << 26)) {
  forest_.prepare();
  if (LeafMasks::bytes_needed(forest_) > mask_bytes) return;
  std::vector<std::int32_t> low(forest_.n_axes(), 0), high;
  for (int a = 0; a < forest_.n_axes(); ++a) high.push_back(forest_.of(a).n_cells - 1);
  whole_ = std::make_unique<LeafMasks>();
  whole_->build(forest_, low.data(), high.data());
  if (CombinationSums::fits(forest_)) sums_ = std::make_unique<CombinationSums>(forest_, *whole_);
}

std::size_t Points::bytes() const {
  return forest_.axis.size() * 16 + forest_.value.size() * 8 + (whole_ ? LeafMasks::bytes_needed(forest_) : 0);
}

void Points::check_cells(const PointBatch& batch) const {
  for (std::size_t i = 0; i < batch.n; ++i)
    for (std::size_t g = 0; g < forest_.grid.size(); ++g) {
      const std::int64_t cell = batch.cells[i * forest_.grid.size() + g];
      if (cell < 0 || cell >= static_cast<std::int64_t>(forest_.grid[g].base.size()))
        throw std::invalid_argument("cells: a point lies in a cell that its attribute does not have");
    }
}

void Points::in_chunks(const PointBatch& batch, int workers, const std::function<void()>& poll,
                       const std::function<void(Desk&, std::size_t, std::size_t, std::atomic<bool>&)>& work) {
  std::atomic<bool> halt{false};
  const auto chunk = [&](std::size_t c) {
    Lent lent(*this);
    work(lent.desk(), c * chunk_points, std::min(batch.n, (c + 1) * chunk_points), halt);
  };
  const std::size_t n_chunks = (batch.n + chunk_points - 1) / chunk_points;
  if (n_chunks <= 1 && sums_ && !batch.low) {  // sooner done than a thread is started
    if (n_chunks == 1) chunk(0);
  } else {
    in_threads(workers, n_chunks, halt, poll, chunk);
  }
}

/// x's own cells and its window; false if there is no cell that x' may take.
bool Points::place(const PointBatch& batch, std::size_t i, Window& window) const {
  const int n = forest_.n_axes();
  const std::size_t n_grid = forest_.grid.size();
  const std::int64_t* cells = batch.cells + i * n_grid;
  window.own.resize(n);
  window.low.resize(n);
  window.high.resize(n);
  bool any = true;
  for (int a = 0; a < n; ++a) {
    const int g = forest_.tested[a];
    const PointAxis& axis = forest_.grid[g];
    const auto r = static_cast<std::size_t>(cells[g]);
    window.own[a] = axis.base[r];
    window.low[a] = axis.low[r];
    window.high[a] = axis.high[r];
    if (batch.low) {
      window.low[a] = std::max(window.low[a], batch.low[i * n_grid + g]);
      window.high[a] = std::min(window.high[a], batch.high[i * n_grid + g]);
      any &= window.low[a] <= window.high[a];
    }
  }
  // semantics.md: if all sensitive cells of x are single points, x' lies in another combination of cells.
  window.must_differ = !forest_.free_partner;
  if (!forest_.free_partner)
    for (std::size_t g = 0; g < n_grid; ++g) {
      const PointAxis& axis = forest_.grid[g];
      if (axis.sensitive && !axis.single[axis.base[cells[g]]]) window.must_differ = false;
    }
  return any;
}

void Points::enter(Desk& desk) const {
  if (!whole_) {
    // The masks hold x's own cell too: a window that was cut down may leave it out.
    std::vector<std::int32_t>& low = desk.cells;
    low.resize(2 * desk.window.low.size());
    std::int32_t* high = low.data() + desk.window.low.size();
    for (std::size_t a = 0; a < desk.window.low.size(); ++a) {
      low[a] = std::min(desk.window.low[a], desk.window.own[a]);
      high[a] = std::max(desk.window.high[a], desk.window.own[a]);
    }
    desk.local.build(forest_, low.data(), high);
  }
  desk.search.use(whole_ ? *whole_ : desk.local);
  desk.search.enter(desk.window);
}

void Points::sum_up(const PointBatch& batch, std::size_t first, std::size_t last, Desk& desk) const {
  const int n = forest_.n_axes();
  desk.cells.resize((last - first) * n);
  for (std::size_t i = first; i < last; ++i)
    for (int a = 0; a < n; ++a)
      desk.cells[(i - first) * n + a] = forest_.of(a).base[batch.cells[i * forest_.grid.size() + forest_.tested[a]]];
  desk.totals.resize((last - first) * sums_->size() * forest_.n_outputs());
  sums_->sum(desk.cells.data(), static_cast<int>(last - first), desk.totals.data());
}

/// What decides a binary point with this margin: an x' with F <= neg, or with -F <= -pos. False if nothing is to be
/// asked.
bool Points::ask(const PointThresholds& t, std::int64_t F, std::int8_t& verdict,
                 std::vector<Question>& questions) const {
  const bool positive = F >= t.conf_pos + fuzz_, negative = F <= t.conf_neg - fuzz_;
  if (F > t.conf_neg + fuzz_ && F < t.conf_pos - fuzz_)
    verdict = static_cast<std::int8_t>(Kind::low);
  else
    verdict = positive || negative ? kind_open : kind_close;
  if (verdict != kind_open) return false;
  if (positive ? t.counted < 0 : t.counted > 0) {
    verdict = static_cast<std::int8_t>(Kind::fair);
    return false;
  }
  questions.assign(1, positive ? Question{0, -1, t.neg, fuzz_} : Question{-1, 0, -t.pos, fuzz_});
  return true;
}

/// x' has another class than c iff some rival is ahead of c there, or level with it and before it.
void Points::ask_rivals(int c, std::vector<Question>& questions) const {
  questions.clear();
  for (int rival = 0; rival < forest_.n_outputs(); ++rival)
    if (rival != c) questions.push_back({c, rival, rival < c ? 0 : -1, 2 * fuzz_});
}

Found Points::among_combinations(Desk& desk, const std::int64_t* totals, const Question& question,
                                 const PlaceRange& range) const {
  const int n = sums_->size(), own = sums_->combination_of(desk.window.own.data());
  const std::int64_t* plus = question.plus >= 0 ? totals + static_cast<std::ptrdiff_t>(question.plus) * n : nullptr;
  const std::int64_t* minus = question.minus >= 0 ? totals + static_cast<std::ptrdiff_t>(question.minus) * n : nullptr;
  bool close = false;
  for (int s = 0; s < n; ++s) {
    if (s == own && desk.window.must_differ) continue;
    if (range.place && (range.place[s] < range.first || range.place[s] > range.last)) continue;
    const std::int64_t G = (plus ? plus[s] : 0) - (minus ? minus[s] : 0);
    if (G > question.target + question.slack) continue;
    if (G <= question.target - question.slack) {
      desk.search.best = desk.window.own;
      sums_->take_cells(s, desk.search.best.data());
      return Found::some;
    }
    close = true;
  }
  return close ? Found::close : Found::none;
}

Found Points::answer(Desk& desk, const std::int64_t* totals, Effort& effort) const {
  bool close = false, given_up = false;
  for (const Question& question : desk.questions) {
    const Found found = totals ? among_combinations(desk, totals, question) : desk.search.find(question, effort);
    if (found == Found::some) return found;
    close |= found == Found::close;
    given_up |= found == Found::given_up;
  }
  return close ? Found::close : given_up ? Found::given_up : Found::none;
}

/// The two targets of a point whose cell on the partners' axis is given, one after the other.
Found Points::look(const PointTargets& targets, std::size_t i, int cell, const std::vector<std::int32_t>& place,
                   Desk& desk, const std::int64_t* totals, Effort& effort) const {
  Window& window = desk.window;
  // Along an attribute that no tree tests x' may stay where x is.
  const int number = targets.axis < 0 ? -1 : forest_.grid[targets.axis].number;
  const std::int32_t low = number < 0 ? 0 : window.low[number], high = number < 0 ? 0 : window.high[number];
  bool close = false, given_up = false;
  for (const int side : {0, 1}) {
    const std::int64_t target = targets.target[2 * i + static_cast<std::size_t>(side)];
    if (target == PointTargets::nobody_below || target == PointTargets::nobody_above) continue;
    const Question question =
        side == 0 ? Question{0, -1, target, targets.slack[i]} : Question{-1, 0, -target, targets.slack[i]};
    PlaceRange range;
    if (number >= 0) {
      const std::int32_t* ends = targets.ranges + 2 * static_cast<std::size_t>(side) * targets.n_cells + cell;
      range = {place.data(), std::max(low, ends[0]), std::min(high, ends[targets.n_cells])};
      if (range.first > range.last) continue;
    }
    Found found;
    if (totals) {
      found = among_combinations(desk, totals, question, range);
    } else {
      if (number >= 0) {
        window.low[number] = range.first;
        window.high[number] = range.last;
      }
      enter(desk);
      found = desk.search.find(question, effort);
    }
    if (found == Found::some) return found;
    close |= found == Found::close;
    given_up |= found == Found::given_up;
  }
  return close ? Found::close : given_up ? Found::given_up : Found::none;
}

void Points::note(const PointBatch& batch, std::size_t i, Found found, const Desk& desk, bool idle_differs) const {
  const Kind kind = found == Found::none ? Kind::fair : found == Found::some ? Kind::unfair : Kind::unknown;
  batch.verdict[i] = found == Found::close ? kind_close : static_cast<std::int8_t>(kind);
  if (found != Found::some) return;
  for (std::size_t g = 0; g < forest_.grid.size(); ++g) {
    const PointAxis& axis = forest_.grid[g];
    std::int32_t& cell = batch.witness[i * forest_.grid.size() + g];
    cell = axis.base[batch.cells[i * forest_.grid.size() + g]];
    if (axis.number >= 0)
      cell = desk.search.best[axis.number];
    else if (idle_differs && axis.sensitive && axis.n_cells > 1)  // x' differs here at no cost
      cell = cell == 0 ? 1 : 0;
  }
}

void Points::decide(const PointBatch& batch, const PointThresholds& thresholds, std::int64_t budget, int workers,
                    const std::function<void()>& poll) {
  check_cells(batch);
  in_chunks(batch, workers, poll, [&](Desk& desk, std::size_t first, std::size_t last, std::atomic<bool>& halt) {
    const bool by_sums = sums_ && !batch.low;
    if (by_sums) sum_up(batch, first, last, desk);
    for (std::size_t i = first; i < last; ++i) {
      const bool any = place(batch, i, desk.window);
      const std::int64_t* totals = by_sums ? &desk.totals[(i - first) * sums_->size()] : nullptr;
      std::int64_t F = 0;
      if (by_sums) {
        F = totals[sums_->combination_of(desk.window.own.data())];
      } else {
        enter(desk);
        desk.search.margins(&F);
      }
      if (!ask(thresholds, F, batch.verdict[i], desk.questions)) continue;
      Effort effort{budget, 0, &halt};
      note(batch, i, any ? answer(desk, totals, effort) : Found::none, desk);
    }
  });
}

void Points::decide_targets(const PointBatch& batch, const PointTargets& targets, std::int64_t budget, int workers,
                            const std::function<void()>& poll) {
  check_cells(batch);
  const std::size_t n_grid = forest_.grid.size();
  if (targets.axis >= 0) {
    if (static_cast<std::size_t>(targets.axis) >= n_grid || !forest_.grid[targets.axis].sensitive ||
        targets.n_cells != forest_.grid[targets.axis].base.size())
      throw std::invalid_argument("points: the attribute of the partners");
    for (std::size_t k = 0; k < 4 * targets.n_cells; ++k)
      if (targets.ranges[k] < -1 || targets.ranges[k] > forest_.grid[targets.axis].n_cells)
        throw std::invalid_argument("points: ranges of partners");
  }
  std::vector<std::int32_t> place;  // combination -> its cell on the partners' axis
  if (sums_ && targets.axis >= 0 && forest_.grid[targets.axis].number >= 0) {
    std::vector<std::int32_t> cells(forest_.n_axes(), 0);
    for (int s = 0; s < sums_->size(); ++s) {
      sums_->take_cells(s, cells.data());
      place.push_back(cells[forest_.grid[targets.axis].number]);
    }
  }
  in_chunks(batch, workers, poll, [&](Desk& desk, std::size_t first, std::size_t last, std::atomic<bool>& halt) {
    const bool by_sums = sums_ && !batch.low;
    if (by_sums) sum_up(batch, first, last, desk);
    for (std::size_t i = first; i < last; ++i) {
      if (batch.verdict[i] != kind_open) continue;
      const bool any = this->place(batch, i, desk.window);
      desk.window.must_differ = true;
      const auto cell = static_cast<int>(targets.axis < 0 ? 0 : batch.cells[i * n_grid + targets.axis]);
      const std::int64_t* totals = by_sums ? &desk.totals[(i - first) * sums_->size()] : nullptr;
      Effort effort{budget, 0, &halt};
      note(batch, i, any ? look(targets, i, cell, place, desk, totals, effort) : Found::none, desk, false);
    }
  });
}

void Points::decide_rivals(const PointBatch& batch, const std::int64_t* own_class, std::int64_t budget, int workers,
                           const std::function<void()>& poll) {
  check_cells(batch);
  for (std::size_t i = 0; i < batch.n; ++i)
    if (own_class[i] < 0 || own_class[i] >= forest_.n_outputs()) throw std::invalid_argument("points: no such class");
  in_chunks(batch, workers, poll, [&](Desk& desk, std::size_t first, std::size_t last, std::atomic<bool>& halt) {
    const bool by_sums = sums_ && !batch.low;
    if (by_sums) sum_up(batch, first, last, desk);
    for (std::size_t i = first; i < last; ++i) {
      if (batch.verdict[i] != kind_open) continue;
      const bool any = place(batch, i, desk.window);
      if (!by_sums) enter(desk);
      ask_rivals(static_cast<int>(own_class[i]), desk.questions);
      const std::int64_t* totals = by_sums ? &desk.totals[(i - first) * sums_->size() * forest_.n_outputs()] : nullptr;
      Effort effort{budget, 0, &halt};
      note(batch, i, any ? answer(desk, totals, effort) : Found::none, desk);
    }
  });
}

void Points::margins(const std::int64_t* cells, std::size_t n, std::int64_t* outputs, int workers,
                     const std::function<void()>& poll) {
  const std::size_t n_grid = forest_.grid.size();
  const int n_axes = forest_.n_axes();
  for (std::size_t i = 0; i < n; ++i)
    for (int a = 0; a < n_axes; ++a) {
      const std::int64_t cell = cells[i * n_grid + forest_.tested[a]];
      if (cell < 0 || cell >= forest_.of(a).n_cells) throw std::invalid_argument("cells: no such base cell");
    }
  const PointBatch batch{cells, n, nullptr, nullptr, nullptr, nullptr};
  in_chunks(batch, workers, poll, [&](Desk& desk, std::size_t first, std::size_t last, std::atomic<bool>&) {
    for (std::size_t i = first; i < last; ++i) {
      desk.window.own.resize(n_axes);
      for (int a = 0; a < n_axes; ++a)
        desk.window.own[a] = static_cast<std::int32_t>(cells[i * n_grid + forest_.tested[a]]);
      desk.window.low = desk.window.high = desk.window.own;
      enter(desk);
      desk.search.margins(outputs + i * forest_.n_outputs());
    }
  });
}

}  // namespace boxqte
