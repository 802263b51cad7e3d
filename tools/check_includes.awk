# Whether all that a compiler has read for one file is the repository's, the standard library's or
# the system's C interface. An allowlist: a header that nobody has heard of is foreign.
#
#   awk -f check_includes.awk -v own=REGEX FOLDERS FILE.d
#
# FOLDERS: where the compiler looks by itself, as `c++ -E -v` prints it. own: paths, relative to the
# root of the repository or absolute, that are welcome besides. Prints each foreign header; exits 1
# if there is one, 2 if it cannot tell.
#
# Below the C++ library's and the compiler's own folders everything is allowed. In /usr/include and
# the like, where anybody installs, only the names below are. Not caught: a foreign header that takes
# such a name or is put into such a folder (/usr/include/c++/12/eigen.h, /usr/include/sys/nccl.h),
# and a declaration that is copied instead of included.

BEGIN {
  list("headers", "aio alloca ar argp argz assert byteswap complex cpio crypt ctype cpuid dirent dlfcn elf endian " \
       "envz err errno error execinfo fcntl features features-time64 fenv float fmtmsg fnmatch fstab fts ftw getopt " \
       "glob gnu-versions grp iconv ifaddrs inttypes iso646 langinfo lastlog libgen libintl limits link locale " \
       "malloc math mcheck memory mntent monetary mqueue ndbm netdb nl_types obstack paths poll printf pthread pty " \
       "pwd regex resolv sched search semaphore setjmp shadow signal spawn stab stdalign stdarg stdatomic stdbool " \
       "stdc-predef stddef stdint stdio stdio_ext stdlib stdnoreturn string strings stropts syscall sysexits syslog " \
       "tar termio termios tgmath threads time trace uchar ucontext ulimit unistd utime utmp utmpx values wait wchar " \
       "wctype wordexp xlocale")
  list("folders", "arpa asm asm-generic bits gnu linux net netinet netpacket sys")
}

function list(kind, names,   i, n, words) {
  n = split(names, words, " ")
  for (i = 1; i <= n; ++i) allowed[kind, words[i]] = 1
}

# The path without ".", ".." and doubled slashes.
function tidy(path,   i, n, parts, depth, kept, text) {
  n = split(path, parts, "/")
  depth = 0
  for (i = 1; i <= n; ++i) {
    if (parts[i] == "" || parts[i] == ".") continue
    if (parts[i] == ".." && depth > 0 && kept[depth] != "..") --depth
    else kept[++depth] = parts[i]
  }
  text = path ~ /^\// ? "/" : ""
  for (i = 1; i <= depth; ++i) text = text (i > 1 ? "/" : "") kept[i]
  return text
}

function compilers_own(folder) {
  return folder ~ /\/c\+\+\// || folder ~ /\/gcc(-cross)?\/.*\/include(-fixed)?$/ || folder ~ /\/clang\/[^\/]*\/include$/
}

function is_foreign(path,   folder, nearest, rest, first) {
  if (path ~ own) return 0
  nearest = ""
  for (folder in folders) {
    if (index(path, folder "/") == 1 && length(folder) > length(nearest)) nearest = folder
  }
  if (nearest == "") return 1
  if (compilers_own(nearest)) return 0
  rest = substr(path, length(nearest) + 2)
  first = rest
  if (sub(/\/.*/, "", first)) return !(("folders", first) in allowed)
  return !(sub(/\.h$/, "", first) && ("headers", first) in allowed)
}

FNR == 1 { ++file }
file == 1 && /search starts here:$/ { inside = 1; next }
file == 1 && /^End of search list/ { inside = 0 }
file == 1 && inside { folders[tidy(substr($0, 2))] = 1; found = 1 }
file == 2 {
  gsub(/\\ /, "\001")  # a blank in a name
  for (i = 1; i <= NF; ++i) {
    if ($i == "\\" || $i ~ /:$/) continue
    gsub(/\001/, " ", $i)
    path = tidy($i)
    ++headers
    if (!(path in seen) && is_foreign(path)) {
      print path
      status = 1
    }
    seen[path] = 1
  }
}
END {
  if (!found || headers < 1) {
    print "no list of folders, or no list of headers"
    exit 2
  }
  exit status
}
