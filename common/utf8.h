/* Strict UTF-8, as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
 * Pure; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed character at the front of `data`, or 0 when there is none. */
size_t utf8_character(const uint8_t *data, size_t size);
bool utf8_valid(const uint8_t *data, size_t size);
/* Makes a NUL-terminated text well-formed, a '?' for every byte that is not. */
void utf8_clean(char *text);
/* As much of a text as fits into `ret`, for one line of somebody else's: cut between characters,
 * with a '?' for every byte that is not well-formed and a space for every control character. */
void utf8_one_line(const char *text, char *ret, size_t size);
