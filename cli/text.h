/* Words for people: ages, times, and texts from peers that a terminal can bear. Pure but for the
 * clock; any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_TIME_MAX 32u

/* A copy in which nothing can move a cursor, hide or reorder: control characters become \x1b, and
 * the invisible and turning ones of Unicode \u202e. To be freed; NULL when there is no memory. */
char *text_escape(const char *text);
/* printf(3) of lines, each of them escaped. */
void text_print(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "45s", "14m", "3h", "12d"; never negative. */
void text_duration(int64_t ms, char out[TEXT_TIME_MAX]);
/* "2026-11-18T11:50:04Z", or "-" for 0. */
void text_time(int64_t unix_ms, char out[TEXT_TIME_MAX]);
/* "3h ago", "in 14m", or "-" for 0. */
void text_when(int64_t unix_ms, char out[TEXT_TIME_MAX]);
