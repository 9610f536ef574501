/* For log.c and log_sink.c only: one event on its way from the call to a sink. Any thread. */
#pragma once

#include "common/log.h"

struct log_line {
    enum log_level level;
    const char *program;
    const char *message;
    const struct log_field *fields;
    unsigned count;
    bool colour;
};

/* In log.c, beside the parser that reads the same names. */
const char *log_level_name(enum log_level level);

/* Each writes the line whole, once, to stderr or the journal. JSON and the journal fall back to
 * text when they cannot: a line in the wrong format is worth more than none. */
void log_sink_text(const struct log_line *line);
void log_sink_json(const struct log_line *line);
void log_sink_journal(const struct log_line *line);
