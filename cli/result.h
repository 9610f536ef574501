/* How a command ended, in words for a table: "exit 0", "killed by KILL", "timed out", "lost: runner
 * restarted". Pure; any thread. */
#pragma once

#include "client/sandstorm.h"

#define RESULT_TEXT_MAX 128u

/* "-" where there is no result. Not yet made harmless for a terminal. */
void result_text(const struct sandstorm_outcome *outcome, char out[RESULT_TEXT_MAX]);

#define RESULT_SENTENCE_MAX (SANDSTORM_TEXT_MAX + 128u)

/* What a number cannot say, as a sentence; "" where there is nothing to say. */
void result_sentence(const struct sandstorm_outcome *outcome, char out[RESULT_SENTENCE_MAX]);
