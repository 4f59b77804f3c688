/* See trace_files.h. */
#include "trace_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/text.h"

static char folder[64];

const char *traces_begin(void) {
    strcpy(folder, "/tmp/wagma-trace-XXXXXX");
    if (!mkdtemp(folder))
        abort();
    setenv("WAGMA_TRACE", folder, 1);
    return folder;
}

/* Calls `visit`, if any, with the path of each file; their number. */
static int each_file(int (*visit)(const char *path)) {
    int n = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[512];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (visit)
            visit(path);
        n++;
    }
    if (entries)
        closedir(entries);
    return n;
}

void traces_end(void) {
    each_file(unlink);
    rmdir(folder);
    unsetenv("WAGMA_TRACE");
    unsetenv("WAGMA_TRACE_LIMIT");
}

const char *traces_read(const char *name) {
    static char *text;
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &status) != 0)
        return "";
    free(text);
    text = calloc(1, (size_t)status.st_size + 1);
    if (!text || fread(text, 1, (size_t)status.st_size, file) != (size_t)status.st_size)
        abort();
    fclose(file);
    return text;
}

int traces_count(void) {
    return each_file(NULL);
}

/* Under sanitizers strstr() looks at the whole text every time. */
const char *traces_find(const char *text, const char *word) {
    for (; *text; text++)
        for (size_t i = 0; text[i] == word[i] || !word[i]; i++)
            if (!word[i])
                return text;
    return NULL;
}

int traces_words(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = traces_find(at, word)); at += strlen(word))
        n++;
    return n;
}

uint64_t trace_recorded(const struct trace *t) {
    return atomic_load(&t->recorded);
}

const char *trace_kinds(const struct trace *t, uint64_t first) {
    static char text[TRACE_RING * 16];
    size_t used = 0;
    text[0] = 0;
    for (uint64_t i = first; i < trace_recorded(t); i++) {
        const struct trace_seen event = trace_see(&t->ring[i % TRACE_RING]);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "",
                                 trace_kind_name(event.kind));
    }
    return text;
}
