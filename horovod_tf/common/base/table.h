// Table: the rows of a constant array. Background threads use tables until the very end of the
// process, after exit() has destroyed whatever has a destructor; so a table has none.
#ifndef HOROVOD_TF_COMMON_BASE_TABLE_H_
#define HOROVOD_TF_COMMON_BASE_TABLE_H_

#include <cstddef>
#include <type_traits>

namespace horovod_tf {

// A view: copying it copies no rows.
//
// Thread rule: immutable.
template <typename Row>
class Table {
 public:
  static_assert(std::is_trivially_destructible_v<Row>, "exit() would destroy the rows");

  // REQUIRES: `rows` is constant for the life of the process.
  template <std::size_t N>
  constexpr explicit Table(const Row (&rows)[N]) : begin_(rows), size_(N) {}
  // The first `size` of them.
  template <std::size_t N>
  constexpr Table(const Row (&rows)[N], std::size_t size) : begin_(rows), size_(size) {}

  constexpr const Row* begin() const { return begin_; }
  constexpr const Row* end() const { return begin_ + size_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const Row& front() const { return begin_[0]; }
  constexpr const Row& back() const { return begin_[size_ - 1]; }
  constexpr const Row& operator[](std::size_t i) const { return begin_[i]; }

 private:
  const Row* begin_;
  std::size_t size_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_TABLE_H_
