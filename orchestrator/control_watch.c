#include "orchestrator/control.h"

int control_watch_sandboxes(void *userdata, struct rpc_call *call, struct err *err)
{
    (void)userdata;
    (void)call;
    return err_set(err, ERR_UNIMPLEMENTED, "not in this build");
}
