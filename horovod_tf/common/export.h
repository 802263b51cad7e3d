/* HVD_EXPORT: what carries this is exported also where symbols are hidden by default (a leaf's one
 * function). C and C++. What the core exports is in tools/exports.map. */
#ifndef HOROVOD_TF_COMMON_EXPORT_H_
#define HOROVOD_TF_COMMON_EXPORT_H_

#define HVD_EXPORT __attribute__((visibility("default")))

#endif /* HOROVOD_TF_COMMON_EXPORT_H_ */
