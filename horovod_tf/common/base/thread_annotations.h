// Clang's thread-safety attributes; other compilers see nothing. This is the one header besides the
// leaves that may ask which compiler it is.
#ifndef HOROVOD_TF_COMMON_BASE_THREAD_ANNOTATIONS_H_
#define HOROVOD_TF_COMMON_BASE_THREAD_ANNOTATIONS_H_

#ifdef __clang__
#define HVD_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define HVD_THREAD_ANNOTATION(x)
#endif

#define HVD_CAPABILITY(x) HVD_THREAD_ANNOTATION(capability(x))
#define HVD_SCOPED_CAPABILITY HVD_THREAD_ANNOTATION(scoped_lockable)
#define HVD_GUARDED_BY(x) HVD_THREAD_ANNOTATION(guarded_by(x))
#define HVD_PT_GUARDED_BY(x) HVD_THREAD_ANNOTATION(pt_guarded_by(x))
#define HVD_REQUIRES(...) HVD_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define HVD_ACQUIRE(...) HVD_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define HVD_RELEASE(...) HVD_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define HVD_EXCLUDES(...) HVD_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define HVD_RETURN_CAPABILITY(x) HVD_THREAD_ANNOTATION(lock_returned(x))
#define HVD_NO_THREAD_SAFETY_ANALYSIS HVD_THREAD_ANNOTATION(no_thread_safety_analysis)

#endif  // HOROVOD_TF_COMMON_BASE_THREAD_ANNOTATIONS_H_
