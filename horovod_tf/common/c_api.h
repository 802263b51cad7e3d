/* The C functions that Python calls through ctypes.
 *
 * Conventions:
 * 1. Plain C types only: int and const char*. No C++ bool, no exceptions.
 * 2. Functions that do something return 0 for success and -1 for failure; horovod_last_error() then
 * has the text. Functions that ask return the answer, and -1 before init.
 * 3. Text that is returned belongs to the library and stays valid until the same thread's next call
 *    of a function here. Text is UTF-8 (a byte that is none becomes '?') and ends with a zero byte.
 *    An error's text is cut after 8191 bytes, never inside a character.
 * 4. Every function may be called from any thread, and from exit handlers.
 * 5. In a process that was forked after horovod_init, nothing is initialized: horovod_init and the
 *    questions fail and say so, horovod_shutdown does nothing.
 */
#ifndef HOROVOD_TF_COMMON_C_API_H_
#define HOROVOD_TF_COMMON_C_API_H_

#include "horovod_tf/common/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All ranks must have said the same value of this name by horovod_init, or it fails on all of them
 * and names two that differ. The last value of a name counts. UTF-8, ended by a zero byte. */
HVD_EXPORT int horovod_agree_on(const char* name, const char* value);
/* Starts the library and meets the other ranks. Harmless when repeated. */
HVD_EXPORT int horovod_init(void);
/* The same for a job of some of the processes that were started together: `ranks` are theirs in
 * MPI's world, by rank in the job. The others' call fails. n 0: all. */
HVD_EXPORT int horovod_init_ranks(const int* ranks, int n);
/* Stops it on all ranks. Harmless when repeated. horovod_init works again afterwards. */
HVD_EXPORT int horovod_shutdown(void);
/* The same; the other ranks are told this reason, UTF-8 and ended by a zero byte. */
HVD_EXPORT int horovod_shutdown_because(const char* reason);
/* When the process ends, after horovod_shutdown: finalises MPI if horovod_init has initialised it
 * and no job has failed. horovod_init may fail afterwards. */
HVD_EXPORT int horovod_finalize(void);
/* 1 between a successful init and shutdown, else 0. */
HVD_EXPORT int horovod_is_initialized(void);

/* -1 before init. */
HVD_EXPORT int horovod_rank(void);
HVD_EXPORT int horovod_size(void);
HVD_EXPORT int horovod_local_rank(void);
HVD_EXPORT int horovod_local_size(void);
HVD_EXPORT int horovod_cross_rank(void);
HVD_EXPORT int horovod_cross_size(void);
/* 1 if every host has the same number of ranks, else 0; -1 before init. */
HVD_EXPORT int horovod_is_homogeneous(void);
/* 1 if MPI may be called from several threads at once, else 0; -1 before init. */
HVD_EXPORT int horovod_mpi_threads_supported(void);

/* Process sets: groups of ranks with collectives of their own. 0 is the set of all ranks, which is
 * always there. Adding and removing is done by all ranks together, and waits for them. */
/* The new set's id, above 0 and not used again in this job, or -1: all ranks get the same.
 * `ranks` are the job's, by rank in the set. */
HVD_EXPORT int horovod_add_process_set(const int* ranks, int n);
HVD_EXPORT int horovod_remove_process_set(int id);
/* Below: -1 before init, -3 if there is no such set. */
HVD_EXPORT int horovod_process_set_size(int id);
/* This process's rank in the set; -4 if it is no member. */
HVD_EXPORT int horovod_process_set_rank(int id);
/* 1 if this process is a member, else 0. */
HVD_EXPORT int horovod_process_set_included(int id);
/* How many sets there are; writes the ids of the first n, in ascending order. */
HVD_EXPORT int horovod_process_set_ids(int* ids, int n);
/* The set's size; writes the first n of its ranks, which are the job's. */
HVD_EXPORT int horovod_process_set_ranks(int id, int* ranks, int n);

/* From now on rank 0 writes a timeline to this file (UTF-8, ended by a zero byte); on other ranks
 * nothing happens. Another file that it writes is finished; the same one again changes nothing. */
HVD_EXPORT int horovod_start_timeline(const char* path);
/* Finishes the file; harmless when there is none. */
HVD_EXPORT int horovod_stop_timeline(void);

/* What this rank does and waits for, for how long, who is missing, and the environment in force:
 * several lines. SIGUSR1 prints the same to standard error, if nobody else handles it. */
HVD_EXPORT const char* horovod_status(void);

/* Withdraws what has waited for other ranks for the configured time, because of this: UTF-8, ended
 * by a zero byte. Harmless without a job. */
HVD_EXPORT void horovod_interrupt(const char* reason);

/* Why this thread's last failed call failed; "" if none has. */
HVD_EXPORT const char* horovod_last_error(void);
/* The same error's code, numbered as TensorFlow's; 0 if none. */
HVD_EXPORT int horovod_last_error_code(void);
/* "0.1.0" */
HVD_EXPORT const char* horovod_version(void);
/* docs/environment.md, generated from the table that the library parses with. */
HVD_EXPORT const char* horovod_environment_markdown(void);

#ifdef __cplusplus
}
#endif

#endif /* HOROVOD_TF_COMMON_C_API_H_ */
