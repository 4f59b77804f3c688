/* See executor.h. */
#include "engine/executor.h"

#include <stdio.h>

#include "base/error.h"

enum { REASONS = 768 }; /* bytes; together with the rest they fit into an error's text */

const struct executor *executor_choose(const struct executor *const *table, int n,
                                       const struct executor_request *request) {
    char reasons[REASONS] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const char *reason = table[i]->fits(request);
        if (!reason)
            return table[i];
        if (used < sizeof reasons)
            used += (size_t)snprintf(reasons + used, sizeof reasons - used, "%s%s: %s",
                                     i > 0 ? "; " : "", table[i]->name, reason);
    }
    (void)error_set(WAGMA_EINVAL, "no executor fits the options (%s)", reasons);
    return NULL;
}
