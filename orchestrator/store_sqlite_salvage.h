/* One table of a repair; for orchestrator/store_sqlite_repair.c only. The store's thread. */
#pragma once

#include "orchestrator/store_sqlite.h"
#include "orchestrator/store_tools.h"

/* Copies what can be read. What cannot be read is no error but in the answer; one of the new
 * database, as a full disk, is. The name stays the caller's. */
int store_salvage_table(struct store_tx *from, struct store_tx *to, const char *table,
                        struct store_salvage *ret, struct err *err) must_use;
