/* The audit as the loop sees it: rows are written by the store, and whoever writes one goes on when
 * it is there. A job that appends to the audit itself says so when it is done, for those who
 * follow. Loop thread. */
#pragma once

#include "orchestrator/store.h"

struct orchestrator;

/* Calls `done` when the row is committed (`failed` is NULL) or cannot be written: then what it is
 * about must not happen. -1: not even that, and `done` is not called. */
int audit_write(struct orchestrator *orchestrator, const struct audit_entry *entry,
                void (*done)(void *userdata, const struct err *failed), void *userdata,
                struct err *err) must_use;
/* There are new rows: wakes orchestrator->audit_watches. */
void audit_notify(struct orchestrator *orchestrator);
/* What a refusal for want of the audit says. */
void audit_unwritable(struct err *failed);
