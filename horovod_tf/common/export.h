/* HVD_EXPORT: the library is built with hidden symbols; what carries this is its interface. C and
 * C++. */
#ifndef HOROVOD_TF_COMMON_EXPORT_H_
#define HOROVOD_TF_COMMON_EXPORT_H_

#define HVD_EXPORT __attribute__((visibility("default")))

#endif /* HOROVOD_TF_COMMON_EXPORT_H_ */
