/* The fleet's log. Events come from those who decide them; each is a line of our own log. */
#include "orchestrator/logbook.h"

#include <assert.h>

void logbook_event(struct orchestrator *orchestrator, enum log_level level,
                   const struct log_event_kind *kind, const char *sandbox_id,
                   const char *command_id, const struct log_field *fields, unsigned count)
{
    (void)orchestrator;
    struct log_field all[LOG_FIELDS_MAX];
    unsigned used = 0;
    assert(count <= LOGBOOK_FIELDS_MAX);
    all[used++] = LF_STR("sandbox", sandbox_id);
    if (command_id)
        all[used++] = LF_STR("command", command_id);
    all[used++] = LF_STR("event", kind->name);
    all[used++] = LF_MESSAGE_ID(kind->message_id);
    for (unsigned i = 0; i < count; i++)
        all[used++] = fields[i];
    log_event(level, kind->message, all, used);
}
