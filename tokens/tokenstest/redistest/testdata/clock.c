// Preloaded into redis-server, this moves its clock by as many microseconds as
// the file named by REDISTEST_CLOCK says at the moment.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
	int fd = open(getenv("REDISTEST_CLOCK"), O_RDONLY);
	void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		abort();
	offset = page;
	close(fd);
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000 + *offset;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone;
	int64_t t = now();
	tv->tv_sec = t / 1000000;
	tv->tv_usec = t % 1000000;
	return 0;
}

time_t time(time_t *out) {
	time_t t = now() / 1000000;
	if (out)
		*out = t;
	return t;
}
