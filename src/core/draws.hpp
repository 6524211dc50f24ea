// Points drawn from boxes in proportion to mass: the refined cell of every
// attribute.
//
// The random numbers are SplitMix64's, whose n-th one is a function of the seed
// and n: a round is the same on any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bits.hpp"

namespace boxqte {

/// An attribute to draw from.
struct DrawAxis {
  std::vector<double> mass;               ///< refined cell -> its mass
  std::vector<std::int32_t> place;        ///< refined cell -> its bit in a box; never falls
  int box_axis = -1;                      ///< its axis in the boxes; -1: all cells
  std::vector<double> below;              ///< refined cell -> the mass of the cells before
                                          ///< it; one more at the end
  std::vector<std::int32_t> guide;        ///< equal parts of the mass -> the cell in which each begins
  std::vector<std::int32_t> first, last;  ///< bit -> its refined cells

  void prepare();
  /// The cell among low..high in which the share `chance` of their mass ends.
  int pick(int low, int high, double chance) const;
};

class Draws {
 public:
  Draws(std::vector<DrawAxis> axes, std::uint64_t seed);

  std::size_t n_axes() const { return axes_.size(); }

  /// For n parts of equal mass, in order, a number inside each: from 0 to
  /// `mass`.
  void places(std::size_t n, double mass, double* out);

  /// For every point the cells inside its box (index into boxes: box x axis x
  /// word); ends the round that `places` began.
  void cells(const std::int64_t* index, std::size_t n, const Word* boxes, std::size_t n_boxes, int box_axes, int words,
             std::int64_t* out, int workers, const std::function<void()>& poll);

 private:
  /// What a box leaves of an attribute: a range of refined cells, or `first` =
  /// -1: look at its bits.
  struct Held {
    std::int32_t first, last;
  };

  double random(std::uint64_t n) const;
  Held held(const DrawAxis& axis, const Word* words, int n_words) const;
  int pick_among(const DrawAxis& axis, const Word* words, double chance) const;

  std::vector<DrawAxis> axes_;
  std::uint64_t key_;
  std::uint64_t used_ = 0;  ///< numbers of the sequence that earlier rounds took
};

}  // namespace boxqte
