// The tests that run as one process a rank, under mpirun. A failure on any rank fails the job.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_SERIALIZED) {
    std::fprintf(stderr, "this MPI lets no other thread call it\n");
    return 1;
  }
  // After MPI: the suites are made for the number of ranks that there are.
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  // Who leaves without it ends the job, and with it ranks that wait for this one.
  if (failed == 0) MPI_Finalize();
  return failed;
}
