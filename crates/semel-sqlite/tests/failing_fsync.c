/* Loaded before libc, to make fsync fail as a broken disk does: what was written may or may not reach it. */

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The first file makes one call fail and is gone then; the second makes calls fail for as long as it is there. */
static int fails(void) {
    const char *once = getenv("SEMEL_TEST_FSYNC_FAILS_ONCE");
    const char *during = getenv("SEMEL_TEST_FSYNC_FAILS_DURING");
    return (once && unlink(once) == 0) || (during && access(during, F_OK) == 0);
}

static int sync_unless_it_fails(long call, int descriptor) {
    if (fails()) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, descriptor);
}

int fsync(int descriptor) {
    return sync_unless_it_fails(SYS_fsync, descriptor);
}

int fdatasync(int descriptor) {
    return sync_unless_it_fails(SYS_fdatasync, descriptor);
}
