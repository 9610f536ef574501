/* Amounts as people write them: 512M, 1.5 CPUs, a umask, nofile=1024:4096. Pure; any thread. */
#pragma once

#include "client/sandstorm.h"
#include "common/err.h"

#define UNITS_RLIMIT_NAME_MAX 16u

/* "512M", "2G", "64K" by powers of 1,024, or bytes. */
int size_parse(const char *text, uint64_t *ret, struct err *err) must_use;
/* "1.5": thousandths of a CPU. */
int cpus_parse(const char *text, uint64_t *ret_millis, struct err *err) must_use;
/* "027": up to 0777. */
int umask_parse(const char *text, unsigned *ret, struct err *err) must_use;
/* -20 to 19. */
int nice_parse(const char *text, int *ret, struct err *err) must_use;
/* "nofile=1024", "nofile=1024:4096", "core=unlimited"; the name is copied. */
int rlimit_parse(const char *text, char name[UNITS_RLIMIT_NAME_MAX], struct sandstorm_rlimit *ret,
                 struct err *err) must_use;
