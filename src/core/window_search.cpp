#include "window_search.hpp"

#include <algorithm>
#include <limits>

namespace boxqte {

namespace {

constexpr int sweeps = 2;       // over all axes, when cells of a large window are
                                // tried one axis after the other
constexpr int first_steps = 3;  // axes tried before anything else

std::int64_t gain(std::int64_t bound, std::int64_t before, std::int64_t enough) {
  return std::min(bound, enough) - before;
}

}  // namespace

void WindowSearch::use(const LeafMasks& masks) { masks_ = &masks; }

/// The rows whose AND has the leaves that some cell low..high of the axis reaches, or that `every` one does.
WindowSearch::Pair WindowSearch::reaching(int axis, int low, int high, std::vector<Word>& room, bool every) const {
  if (low == high) return {masks_->at(axis, low), masks_->at(axis, low)};
  if (masks_->rows(axis).ranged)
    return {masks_->upto(axis, every ? low : high), masks_->from(axis, every ? high : low)};
  room.assign(masks_->at(axis, low), masks_->at(axis, low) + masks_->stride());
  for (int cell = low + 1; cell <= high; ++cell) {
    const Word* row = masks_->at(axis, cell);
    for (std::size_t w = 0; w < room.size(); ++w) room[w] = every ? room[w] & row[w] : room[w] | row[w];
  }
  return {room.data(), room.data()};
}

/// Calls run(first, last) for every run of cells among low..high that the leaf holds.
template <typename Run>
inline void WindowSearch::each_run(int axis, std::size_t leaf, int low, int high, const Run& run) const {
  const LeafMasks::Rows& rows = masks_->rows(axis);
  if (rows.ranged) {
    const CellRange range = rows.range[leaf];
    run(std::max(range.low + rows.first, low), std::min(range.high + rows.first, high));
    return;
  }
  for (int c = low, first = low; c <= high; first = ++c) {
    while (c <= high && has_bit(masks_->at(axis, c), static_cast<int>(leaf))) ++c;
    if (first < c) run(first, c - 1);
  }
}

void WindowSearch::enter(const Window& window) {
  window_ = &window;
  const int n = masks_->stride();
  wide_.clear();
  row_list_.assign(1, masks_->all.data());
  for (int a = 0; a < forest_.n_axes(); ++a) {
    if (window.low[a] < window.high[a])
      wide_.push_back(a);
    else if (masks_->rows(a).n > 0)
      list_rows(reaching(a, window.low[a], window.low[a], room_one_));
  }
  fixed_.resize(n);
  meet_rows(row_list_.data(), static_cast<int>(row_list_.size()), n, fixed_.data());
  // Long axes are tried first.
  std::stable_sort(wide_.begin(), wide_.end(),
                   [&](int a, int b) { return window.high[a] - window.low[a] > window.high[b] - window.low[b]; });
  line_start_.assign(1, 0);
  for (const int a : wide_) line_start_.push_back(line_start_.back() + window.high[a] - window.low[a] + 1);
  reached_.resize(n);
  row_list_.assign(1, fixed_.data());
  for (const int a : wide_) {
    if (masks_->rows(a).ranged) {
      list_rows(reaching(a, window.low[a], window.high[a], room_one_));
      continue;
    }
    const Pair pair = reaching(a, window.low[a], window.high[a], room_one_);
    const Word* rows[2] = {row_list_[0], pair.one};
    meet_rows(rows, 2, n, reached_.data());
    row_list_[0] = reached_.data();
  }
  meet_rows(row_list_.data(), static_cast<int>(row_list_.size()), n, reached_.data());
}

void WindowSearch::list_rows(const Pair& pair) {
  row_list_.push_back(pair.one);
  if (pair.two != pair.one) row_list_.push_back(pair.two);
}

/// words_ = the leaves that are reached when the wide axes, but for one, have these cells.
void WindowSearch::meet_cells(const std::vector<Word>& within, const std::vector<std::int32_t>& cell, int but) {
  row_list_.assign(1, within.data());
  for (const int a : wide_)
    if (a != but) list_rows(reaching(a, cell[a], cell[a], room_one_));
  words_.resize(within.size());
  meet_rows(row_list_.data(), static_cast<int>(row_list_.size()), static_cast<int>(within.size()), words_.data());
}

void WindowSearch::margins(std::int64_t* outputs) {
  std::copy(masks_->constant.begin(), masks_->constant.end(), outputs);
  meet_cells(fixed_, window_->own, -1);
  const std::int64_t* value = masks_->value.data();
  for (const MaskedTree& tree : masks_->trees) {
    int w = tree.word;
    while (words_[w] == 0) ++w;
    const std::size_t leaf = static_cast<std::size_t>(w) * word_bits + first_bit(words_[w]);
    if (tree.output >= 0 && masks_->sorted)
      outputs[tree.output] += value[leaf];
    else
      for (int k = 0; k < forest_.n_outputs(); ++k) outputs[k] += masks_->values(k)[leaf];
  }
}

// --- bounds

std::int64_t WindowSearch::least_of_several(const Item& item, const Word* words) const {
  const std::size_t first = static_cast<std::size_t>(item.word) * word_bits;
  if (!up_ && item.sign > 0) {
    int w = 0;
    while (words[w] == 0) ++w;
    return value_[first + static_cast<std::size_t>(w) * word_bits + first_bit(words[w])];
  }
  if (!up_) {
    int w = item.words - 1;
    while (words[w] == 0) --w;
    return -value_[first + static_cast<std::size_t>(w) * word_bits + last_bit(words[w])];
  }
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  each_bit(words, item.words, [&](int bit) { smallest = std::min(smallest, weight(item, first + bit)); });
  return smallest;
}

void WindowSearch::begin(const Question& question, Frame& root) {
  const LeafMasks& m = *masks_;
  value_ = m.value.data();
  narrow_ = m.narrow.data();
  up_ = down_ = nullptr;
  if (!m.sorted) {
    up_ = m.values(question.plus);
    down_ = m.values(question.minus);
    narrow_up_ = m.narrows(question.plus);
    narrow_down_ = m.narrows(question.minus);
  }
  root.low = window_->low;
  root.high = window_->high;
  root.constant =
      (question.plus >= 0 ? m.constant[question.plus] : 0) - (question.minus >= 0 ? m.constant[question.minus] : 0);
  root.bound = root.constant;
  root.items.resize(m.trees.size());
  root.words.resize(reached_.size());
  std::size_t n_items = 0;
  Word* kept = root.words.data();
  const auto take = [&](int first, int last, int sign) {
    for (int t = first; t < last; ++t) {  // without a branch: half of the trees have one leaf left
      const MaskedTree& tree = m.trees[t];
      const Item item{tree.word, tree.words, sign, ~std::uint64_t{0}};
      const Word* words = &reached_[tree.word];
      int held = 0;
      Word several = 0;
      for (int w = 0; w < tree.words; ++w) {
        kept[w] = words[w];
        several |= words[w] & (words[w] - 1);
        held += words[w] != 0;
      }
      const bool one = several == 0 && held == 1;
      const std::int64_t smallest = least(item, words);
      root.bound += smallest;
      root.constant += one ? smallest : 0;
      root.items[n_items] = item;
      n_items += !one;
      kept += one ? 0 : tree.words;
    }
  };
  if (!m.sorted) {
    take(0, static_cast<int>(m.trees.size()), 1);
  } else {
    if (question.plus >= 0) take(m.output_start[question.plus], m.output_start[question.plus + 1], 1);
    if (question.minus >= 0) take(m.output_start[question.minus], m.output_start[question.minus + 1], -1);
  }
  root.items.resize(n_items);
  root.words.resize(static_cast<std::size_t>(kept - root.words.data()));
  root.lines.assign(line_start_.back(), 0);
}

/// `to` is the part of the box with the cells low..high of the axis.
void WindowSearch::narrow(const Frame& from, int axis, int low, int high, Frame& to) {
  const Pair pair = reaching(axis, low, high, room_one_);
  to.low = from.low;
  to.high = from.high;
  to.low[axis] = low;
  to.high[axis] = high;
  to.items = from.items;
  to.words.resize(from.words.size());
  to.lines = from.lines;
  to.constant = from.constant;
  Word* next = to.words.data();
  const Word* words = from.words.data();
  for (const Item& item : from.items)
    for (int w = 0; w < item.words; ++w) *next++ = *words++ & pair.one[item.word + w] & pair.two[item.word + w];
  settle(to);
}

/// Take out the trees that are a constant or a line by now; the bound, and the axes that G depends on.
void WindowSearch::settle(Frame& frame) {
  const auto n_wide = static_cast<int>(wide_.size());
  spans_.resize(n_wide);
  span_rooms_.resize(std::max<std::size_t>(span_rooms_.size(), n_wide));
  for (int j = 0; j < n_wide; ++j)
    spans_[j] = reaching(wide_[j], frame.low[wide_[j]], frame.high[wide_[j]], span_rooms_[j], true);
  frame.bound = 0;
  active_ = 0;
  settled_.resize(frame.items.size());
  settled_words_.resize(frame.words.size());
  std::size_t n_items = 0, n_settled = 0;
  const Word* words = frame.words.data();
  Word *kept = frame.words.data(), *away = settled_words_.data();
  for (std::size_t i = 0; i < frame.items.size(); ++i) {  // without a branch
    Item item = frame.items[i];
    item.scope = scope_of(item, words);
    const bool shared = n_wide > 64 && item.scope == axis_bit(n_wide);  // a bit of several axes
    const bool done = (item.scope & (item.scope - 1)) == 0 && !shared;
    const std::int64_t smallest = least(item, words);
    frame.constant += item.scope == 0 ? smallest : 0;
    frame.bound += done ? 0 : smallest;
    active_ |= done ? 0 : item.scope;
    for (int w = 0; w < item.words; ++w) {
      const Word word = words[w];
      kept[w] = word;
      away[w] = word;
    }
    words += item.words;
    const bool line = done && item.scope != 0;
    frame.items[n_items] = item;
    n_items += !done;
    kept += done ? 0 : item.words;
    settled_[n_settled] = item;
    n_settled += line;
    away += line ? item.words : 0;
  }
  frame.items.resize(n_items);
  frame.words.resize(static_cast<std::size_t>(kept - frame.words.data()));
  words = settled_words_.data();
  for (std::size_t i = 0; i < n_settled; words += settled_[i++].words) move_to_line(frame, settled_[i], words);
  for (int j = 0; j < n_wide; ++j) {
    const int a = wide_[j], from = line_start_[j] - window_->low[a];
    frame.bound += line_least(frame, j, frame.low[a], frame.high[a]);
    for (int c = frame.low[a] + 1; c <= frame.high[a]; ++c)
      if (frame.lines[from + c] != frame.lines[from + c - 1]) active_ |= axis_bit(j);
  }
  frame.bound += frame.constant;
}

/// The axes that a tree depends on: some leaf holds a part of the box's cells only.
inline std::uint64_t WindowSearch::scope_of(const Item& item, const Word* words) const {
  std::uint64_t scope = 0;
  for (int j = 0; j < static_cast<int>(wide_.size()); ++j) {
    Word parts = 0;
    for (int w = 0; w < item.words; ++w)
      parts |= words[w] & ~(spans_[j].one[item.word + w] & spans_[j].two[item.word + w]);
    scope |= parts != 0 ? axis_bit(j) : 0;
  }
  return scope;
}

/// A tree that depends on one axis, added to that axis's line.
void WindowSearch::move_to_line(Frame& frame, const Item& item, const Word* words) {
  const std::size_t first = static_cast<std::size_t>(item.word) * word_bits;
  const int j = std::countr_zero(item.scope), a = wide_[j];
  std::int64_t* line = frame.lines.data() + line_start_[j] - window_->low[a];
  each_bit(words, item.words, [&](int bit) {
    const std::int64_t v = weight(item, first + bit);
    each_run(a, first + bit, frame.low[a], frame.high[a], [&](int from, int to) {
      for (int c = from; c <= to; ++c) line[c] += v;
    });
  });
}

std::int64_t WindowSearch::line_least(const Frame& frame, int wide, int low, int high) const {
  const std::int64_t* line = frame.lines.data() + line_start_[wide] - window_->low[wide_[wide]];
  return *std::min_element(line + low, line + high + 1);
}

/// The bound on that part of the box, without making it.
std::int64_t WindowSearch::bound_within(const Frame& frame, int wide, int low, int high) {
  const Pair pair = reaching(wide_[wide], low, high, room_one_);
  std::int64_t bound = frame.constant;
  for (int j = 0; j < static_cast<int>(wide_.size()); ++j) {
    const int a = wide_[j];
    bound += j == wide ? line_least(frame, j, low, high) : line_least(frame, j, frame.low[a], frame.high[a]);
  }
  const Word* words = frame.words.data();
  thread_local std::vector<Word> rest;
  for (const Item& item : frame.items) {
    if (item.words == 1) {
      const Word word = *words++ & pair.one[item.word] & pair.two[item.word];
      bound += least(item, &word);
      continue;
    }
    rest.resize(item.words);
    for (int w = 0; w < item.words; ++w) rest[w] = words[w] & pair.one[item.word + w] & pair.two[item.word + w];
    bound += least(item, rest.data());
    words += item.words;
  }
  return bound;
}

std::int64_t WindowSearch::value_at(const Frame& frame, const std::vector<std::int32_t>& cell) {
  pairs_.clear();
  for (const int a : wide_)
    if (frame.low[a] < frame.high[a]) pairs_.push_back(reaching(a, cell[a], cell[a], room_one_));
  std::int64_t total = frame.constant;
  for (int j = 0; j < static_cast<int>(wide_.size()); ++j)
    total += frame.lines[line_start_[j] + cell[wide_[j]] - window_->low[wide_[j]]];
  const Word* words = frame.words.data();
  for (const Item& item : frame.items) {
    for (int w = 0; w < item.words; ++w) {
      Word word = words[w];
      for (const Pair& pair : pairs_) word &= pair.one[item.word + w] & pair.two[item.word + w];
      if (word != 0) total += weight(item, static_cast<std::size_t>(item.word + w) * word_bits + first_bit(word));
    }
    words += item.words;
  }
  return total;
}

bool WindowSearch::is_own(const std::vector<std::int32_t>& cell) const {
  for (int a = 0; a < forest_.n_axes(); ++a)
    if (forest_.of(a).sensitive && cell[a] != window_->own[a]) return false;
  return true;
}

bool WindowSearch::only_own(const Frame& frame) const { return is_own(frame.low) && is_own(frame.high); }

/// One cell is enough of an axis that G does not depend on; a sensitive one that x does not have, if it must differ.
void WindowSearch::pin_idle(Frame& frame) {
  for (int j = 0; j < static_cast<int>(wide_.size()); ++j) {
    if (is_active(j)) continue;
    const int a = wide_[j];
    const bool away = window_->must_differ && forest_.of(a).sensitive && frame.low[a] == window_->own[a];
    const std::int32_t pin = away ? frame.high[a] : frame.low[a];
    frame.low[a] = frame.high[a] = pin;
  }
}

// --- trying cells

/// G on all cells of an axis of the window, the other cells as given.
void WindowSearch::fill_line(const Frame& root, int axis, const std::vector<std::int32_t>& cell) {
  const int n = root.high[axis] - root.low[axis] + 1;
  meet_cells(reached_, cell, axis);
  line_.assign(n + 1, 0);
  several_.resize(root.items.size() + 1);
  std::size_t n_several = 0;
  std::int64_t sum = root.constant;
  for (int j = 0; j < static_cast<int>(wide_.size()); ++j) {
    const int a = wide_[j];
    const std::int64_t* along = &root.lines[line_start_[j]];
    if (a != axis)
      sum += along[cell[a] - window_->low[a]];
    else  // as differences, for the running sum
      for (int c = 0; c < n; ++c) line_[c] = along[c] - (c > 0 ? along[c - 1] : 0);
  }
  for (std::size_t i = 0; i < root.items.size(); ++i) {
    const Item& item = root.items[i];
    if (item.words == 1) {  // mostly one leaf is left, which the whole line shares
      const Word word = words_[item.word];
      const bool more = (word & (word - 1)) != 0;
      const std::int64_t v = weight(item, static_cast<std::size_t>(item.word) * word_bits + first_bit(word));
      sum += more ? 0 : v;
      several_[n_several] = static_cast<std::int32_t>(i);
      n_several += more;
    } else {
      several_[n_several++] = static_cast<std::int32_t>(i);
    }
  }
  for (std::size_t k = 0; k < n_several; ++k) {
    const Item& item = root.items[several_[k]];
    const std::size_t first = static_cast<std::size_t>(item.word) * word_bits;
    each_bit(&words_[item.word], item.words, [&](int bit) {
      const std::int64_t v = weight(item, first + bit);
      each_run(axis, first + bit, root.low[axis], root.high[axis], [&](int from, int to) {
        line_[from - root.low[axis]] += v;
        line_[to + 1 - root.low[axis]] -= v;
      });
    });
  }
  line_[0] += sum;
  for (int c = 1; c < n; ++c) line_[c] += line_[c - 1];
}

/// x itself, or the cell of the window next to it, but with other sensitive cells if x' must differ; false if there are none.
bool WindowSearch::start_cell(const Frame& root) {
  cell_ = window_->own;
  for (int a = 0; a < forest_.n_axes(); ++a) cell_[a] = std::clamp(cell_[a], root.low[a], root.high[a]);
  lowest_ = std::numeric_limits<std::int64_t>::max();
  for (const int a : wide_)
    if (window_->must_differ && forest_.of(a).sensitive && is_own(cell_))
      cell_[a] = root.low[a] == cell_[a] ? root.high[a] : root.low[a];
  return !window_->must_differ || !is_own(cell_);
}

/// One axis after the other to its best cell, so many times: most counterexamples are found here. True if one is, in
/// `best`.
bool WindowSearch::descend(const Frame& root, int steps, const Question& question, Effort& effort) {
  const auto n_wide = static_cast<int>(wide_.size());
  for (int step = 0, since = 0; step < steps && since < n_wide; ++step, ++since) {  // since the last move
    const int a = wide_[step % n_wide];
    fill_line(root, a, cell_);
    effort.work += static_cast<std::int64_t>(root.items.size()) * 4;
    const std::int32_t here = cell_[a];
    std::int32_t to = here;
    for (std::int32_t c = root.low[a]; c <= root.high[a]; ++c) {
      if (line_[c - root.low[a]] >= lowest_) continue;
      cell_[a] = c;
      if (window_->must_differ && is_own(cell_)) continue;
      lowest_ = line_[c - root.low[a]];
      to = c;
    }
    cell_[a] = to;
    if (lowest_ <= question.target - question.slack) {
      best = cell_;
      return true;
    }
    if (to != here) since = 0;
  }
  return false;
}

// --- the search

Found WindowSearch::search(std::size_t depth, const Question& question, Effort& effort) {
  Frame& frame = frames_[depth];
  const std::int64_t enough = question.target + question.slack + 1;
  if (frame.bound >= enough || (window_->must_differ && only_own(frame))) return Found::none;
  pin_idle(frame);
  if (lay_out(frame)) return try_dense(frame, question, effort);
  if (effort.work > effort.budget || (effort.halt && effort.halt->load(std::memory_order_relaxed)))
    return Found::given_up;
  // Halve the axis that does the most for the bounds of both halves.
  int axis = -1;
  std::int64_t bounds[2] = {0, 0};
  double most = -1.0;
  for (int j = 0; j < static_cast<int>(wide_.size()); ++j) {
    if (!is_active(j) || frame.low[wide_[j]] == frame.high[wide_[j]]) continue;
    const int a = wide_[j], middle = (frame.low[a] + frame.high[a] + 1) / 2;
    const std::int64_t below = bound_within(frame, j, frame.low[a], middle - 1);
    const std::int64_t above = bound_within(frame, j, middle, frame.high[a]);
    const double score = (1.0 + static_cast<double>(gain(below, frame.bound, enough))) *
                         (1.0 + static_cast<double>(gain(above, frame.bound, enough)));
    effort.work += 2 * static_cast<std::int64_t>(frame.items.size());
    if (score > most) {
      most = score;
      axis = a;
      bounds[0] = below;
      bounds[1] = above;
    }
  }
  if (frames_.size() <= depth + 1) frames_.emplace_back();
  const int middle = (frame.low[axis] + frame.high[axis] + 1) / 2;
  const int first = bounds[1] < bounds[0] ? 1 : 0;
  bool close = false;
  for (const int side : {first, 1 - first}) {
    if (bounds[side] >= enough) continue;
    narrow(frame, axis, side ? middle : frame.low[axis], side ? frame.high[axis] : middle - 1, frames_[depth + 1]);
    effort.work += static_cast<std::int64_t>(frame.items.size());
    const Found found = search(depth + 1, question, effort);
    if (found == Found::some || found == Found::given_up) return found;
    close |= found == Found::close;
  }
  return close ? Found::close : Found::none;
}

Found WindowSearch::find(const Question& question, Effort& effort) {
  if (frames_.empty()) frames_.emplace_back();
  Frame& root = frames_[0];
  begin(question, root);
  if (root.bound > question.target + question.slack) return Found::none;
  const bool startable = start_cell(root);
  if (startable && descend(root, first_steps, question, effort)) return Found::some;
  settle(root);
  if (root.bound > question.target + question.slack) return Found::none;
  std::int64_t cells = 1;
  for (std::size_t j = 0; j < wide_.size() && cells <= dense_limit_; ++j) cells *= line_start_[j + 1] - line_start_[j];
  // All cells of a small window are sooner looked at than tried one by one.
  const int steps = cells <= dense_limit_ ? 0 : sweeps * static_cast<int>(wide_.size());
  if (startable && descend(root, steps, question, effort)) return Found::some;
  return search(0, question, effort);
}

}  // namespace boxqte
