/* A point in the past as people write it: "1h" ago, or 2026-11-18T11:50:04Z, or 2026-11-18 (in
 * UTC). Pure; any thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>

int since_parse(const char *text, int64_t now_us, int64_t *ret_us, struct err *err) must_use;
