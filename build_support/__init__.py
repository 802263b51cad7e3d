"""Where the build finds what the library is built against."""
