/* For logbook*.c: a line on its way to the store. Loop thread. */
#pragma once

#include "orchestrator/logbook.h"
#include "orchestrator/orchestrator-internal.h"

#define LOGBOOK_VALUE_MAX 256u /* of a field, in the store */

/* Takes a copy. Fields that the columns have already (sandbox, command, origin) stay out of the
 * JSON, and so do those that do not fit any more. */
void logbook_keep(struct orchestrator *orchestrator, struct sandbox *sandbox,
                  struct log_record *record, const struct log_field *fields, unsigned count);
/* A line of this sandbox was left out by its limit: there will be a marker. */
void logbook_left_out(struct orchestrator *orchestrator, struct sandbox *sandbox);
