// The library's version, in one place. Ranks refuse to work with a rank that has another one.
#ifndef HOROVOD_TF_COMMON_VERSION_H_
#define HOROVOD_TF_COMMON_VERSION_H_

namespace horovod_tf {

inline constexpr char kLibraryVersion[] = "0.1.0";

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_VERSION_H_
