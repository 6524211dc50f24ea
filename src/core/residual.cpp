#include "residual.hpp"

#include <algorithm>
#include <cstring>

namespace boxqte {

namespace {
constexpr std::size_t first_records = 1 << 12;
}

ResidualTrees::ResidualTrees(const Problem& problem)
    : problem_(problem),
      axis_words_(words_for(problem.axes.size())),
      cut_words_(words_for(problem.cuts.size())),
      cuts_(cut_words_),
      unique_(2 * first_records, 0),
      moves_(first_records) {
  leaf(0, 0);  // record 0 is a leaf: the key of a restriction is never 0
  const Trees& trees = problem.trees;
  const int n = static_cast<int>(trees.cut.size());
  std::vector<TreeId> of_node(trees.cut.size());
  for (int i = n - 1; i >= 0; --i)  // children come after their parents
    of_node[i] = trees.cut[i] < 0 ? leaf(trees.value[i], trees.residue[i])
                                  : make(trees.cut[i], of_node[trees.yes[i]], of_node[trees.no[i]]);
  for (const std::int32_t root : trees.root) roots_.push_back(of_node[root]);
}

std::size_t ResidualTrees::bytes() const {
  return pool_.capacity() + (all_.capacity() + unique_.capacity()) * sizeof(std::uint32_t) +
         moves_.capacity() * sizeof(Move);
}

TreeId ResidualTrees::found_or_added(const Record& record, std::uint64_t hash) {
  const std::size_t last = unique_.size() - 1;
  std::size_t at = hash & last;
  for (; unique_[at] != 0; at = (at + 1) & last) {
    const Record& other = (*this)[unique_[at] - 1];
    if (other.cut == record.cut && other.yes == record.yes && other.no == record.no &&
        (!record.is_leaf() || other.least == record.least))
      return unique_[at] - 1;
  }
  std::fill(cuts_.begin(), cuts_.end(), 0);
  int n_cuts = 0;
  if (!record.is_leaf()) {
    for (int w = 0; w < cut_words_; ++w) cuts_[w] = cuts(record.yes)[w] | cuts(record.no)[w];
    set_bit(cuts_.data(), record.cut);
    n_cuts = count_bits(cuts_.data(), 0, cut_words_ * word_bits);
  }
  const std::size_t before = pool_.size() / sizeof(Word);
  if (before >= none - 1) throw MemoryLimit("more residual trees than can be numbered");
  const auto made = static_cast<TreeId>(before);
  // Two moves a cut fill a word; none of them is known.
  pool_.resize((before + record_words + axis_words_ + cut_words_ + n_cuts) * sizeof(Word), std::byte{0xFF});
  std::memcpy(pool_.data() + before * sizeof(Word), &record, sizeof record);
  Word* at_word = const_cast<Word*>(axes(made));
  std::fill_n(at_word, axis_words_, 0);
  if (!record.is_leaf()) {
    for (int w = 0; w < axis_words_; ++w) at_word[w] = axes(record.yes)[w] | axes(record.no)[w];
    set_bit(at_word, problem_.cuts.axis[record.cut]);
  }
  std::copy(cuts_.begin(), cuts_.end(), at_word + axis_words_);
  all_.push_back(made);
  unique_[at] = made + 1;
  if (2 * all_.size() > unique_.size()) grow_unique();
  return made;
}

namespace {

std::uint64_t hash_of(const Record& record, std::uint64_t (*mixed)(std::uint64_t)) {
  const std::uint64_t sides = (std::uint64_t{record.yes} << 32) ^ record.no;
  return record.is_leaf() ? mixed(static_cast<std::uint64_t>(record.least) ^ mixed(sides ^ 0x9E3779B97F4A7C15ull))
                          : mixed(sides ^ (static_cast<std::uint64_t>(record.cut) * 0x9E3779B97F4A7C15ull));
}

}  // namespace

void ResidualTrees::grow_unique() {
  std::fill(unique_.begin(), unique_.end(), 0);
  unique_.resize(2 * unique_.size(), 0);
  const std::size_t last = unique_.size() - 1;
  for (const TreeId tree : all_) {
    std::size_t at = hash_of((*this)[tree], mixed) & last;
    while (unique_[at] != 0) at = (at + 1) & last;
    unique_[at] = tree + 1;
  }
}

void ResidualTrees::grow_moves() {
  std::vector<Move> old(2 * moves_.size());
  old.swap(moves_);
  const std::size_t last = moves_.size() - 1;
  for (const Move& move : old) {
    if (move.key == 0) continue;
    std::size_t at = mixed(move.key) & last;
    while (moves_[at].key != 0) at = (at + 1) & last;
    moves_[at] = move;
  }
}

TreeId ResidualTrees::leaf(std::int64_t value, std::uint64_t residue) {
  const Record record{-1, static_cast<TreeId>(residue), static_cast<TreeId>(residue >> 32), value, value};
  return found_or_added(record, hash_of(record, mixed));
}

TreeId ResidualTrees::make(int cut, TreeId yes, TreeId no) {
  if (yes == no) return yes;
  const Record &one = (*this)[yes], &other = (*this)[no];
  const Record record{cut, yes, no, std::min(one.least, other.least), std::max(one.most, other.most)};
  return found_or_added(record, hash_of(record, mixed));
}

TreeId ResidualTrees::restrict_anew(TreeId tree, int cut, int side) {
  const Cuts& cuts = problem_.cuts;
  const Record record = (*this)[tree];
  const int outcome = cuts.axis[record.cut] == cuts.axis[cut] ? cuts.implies(cut, side, record.cut) : -1;
  if (outcome >= 0) return restrict(outcome == 1 ? record.yes : record.no, cut, side);
  const TreeId yes = restrict(record.yes, cut, side);
  const TreeId no = restrict(record.no, cut, side);
  return make(record.cut, yes, no);
}

TreeId ResidualTrees::restrict_by_prefix(TreeId tree, int cut, int side) {
  const TreeId result = restrict_anew(tree, cut, side);  // may move the pool
  const_cast<TreeId*>(moves_along(tree))[2 * rank_of(tree, cut) + side] = result;
  return result;
}

TreeId ResidualTrees::restrict_by_set(TreeId tree, int cut, int side) {
  const TreeId result = restrict_anew(tree, cut, side);
  if (2 * ++n_moves_ > moves_.size()) grow_moves();
  const std::uint64_t key = move_key(tree, cut, side);
  const std::size_t last = moves_.size() - 1;
  std::size_t at = mixed(key) & last;  // the recursion may have filled slots, so the search begins anew
  while (moves_[at].key != 0) at = (at + 1) & last;
  moves_[at] = {key, result};
  return result;
}

}  // namespace boxqte
