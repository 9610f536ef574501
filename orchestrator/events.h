/* Something happened to a sandbox that its operator should know: a row in the store, which
 * `sandstorm describe` shows, one in the audit, and a line in the log. Loop thread. */
#pragma once

struct orchestrator;

/* Goes on by itself; an event that cannot be stored is in the log. */
void event_note(struct orchestrator *orchestrator, const char *sandbox_id, const char *kind,
                const char *detail);
