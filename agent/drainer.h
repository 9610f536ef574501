/* Pipes whose command is gone: a process that it left behind may still write. What comes is read
 * and thrown away until the last writer has closed its end. One thread. */
#pragma once

#include "common/loop.h"

#define DRAINER_PIPES_MAX 1024u /* one more is closed, and its writer hears of it */

struct drainer;

int drainer_new(struct loop *loop, struct drainer **ret, struct err *err) must_use;
void drainer_free(struct drainer *drainer);
void drainer_each(struct drainer *drainer, void (*each)(void *userdata, int fd), void *userdata);
/* Takes the descriptor over. */
void drainer_adopt(struct drainer *drainer, int fd);
