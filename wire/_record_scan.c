/* One pass over the records of a batch, as compiled code; `record_scan.py` says what it checks and has it in Python. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Above this size other threads run during the scan. */
#define LARGE_BYTES (64 * 1024)

/* As in record_scan.Fault. */
enum { NONE = 0, CUT_OFF = 1, BAD_VARINT = 2, WRONG_LENGTH = 3, WRONG_OFFSET_DELTA = 4, BAD_SIZE = 5, TRAILING_BYTES = 6 };

typedef struct {
    int fault;
    Py_ssize_t index;
    int64_t timestamp_delta_min;
    int64_t timestamp_delta_max;
    Py_ssize_t without_key;
} Scan;

/* Reads a zigzag varint of at most `bytes_max` bytes; false where it does not end before `end`. */
static inline int read_varint(const uint8_t **at, const uint8_t *end, int bytes_max, int64_t *value)
{
    uint64_t raw = 0;
    const uint8_t *p = *at;
    for (int i = 0; i < bytes_max; i++) {
        if (p >= end)
            return 0;
        uint8_t byte = *p++;
        raw |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            if (bytes_max == 5)
                raw &= 0xFFFFFFFFu;
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            *at = p;
            return 1;
        }
    }
    return 0;
}

/* Passes over a length and as many bytes; lengths below `least` are wrong, -1 has no bytes. */
static inline int skip_bytes(const uint8_t **at, const uint8_t *end, int64_t least, int64_t *length)
{
    if (!read_varint(at, end, 5, length))
        return BAD_VARINT;
    if (*length < least)
        return BAD_SIZE;
    if (*length > 0) {
        if (*length > end - *at)
            return BAD_SIZE;
        *at += *length;
    }
    return NONE;
}

/* What a pass keeps of the last record. */
typedef struct {
    int64_t timestamp_delta;
    int64_t key_length;
} Record;

static int read_record(const uint8_t **at, const uint8_t *end, Py_ssize_t index, Record *record)
{
    int64_t size, offset_delta, length, headers;
    int fault;
    if (!read_varint(at, end, 5, &size))
        return *at >= end ? CUT_OFF : BAD_VARINT;
    if (size < 0)
        return BAD_SIZE;
    if (size > end - *at)
        return CUT_OFF;
    const uint8_t *stop = *at + size;
    if (*at >= stop)
        return WRONG_LENGTH;
    *at += 1; /* attributes: none are defined */
    if (!read_varint(at, stop, 10, &record->timestamp_delta) || !read_varint(at, stop, 5, &offset_delta))
        return BAD_VARINT;
    if (offset_delta != index)
        return WRONG_OFFSET_DELTA;
    if ((fault = skip_bytes(at, stop, -1, &record->key_length)) || (fault = skip_bytes(at, stop, -1, &length)))
        return fault;
    if (!read_varint(at, stop, 5, &headers))
        return BAD_VARINT;
    if (headers < 0 || headers > stop - *at)
        return BAD_SIZE;
    for (; headers > 0; headers--)
        if ((fault = skip_bytes(at, stop, 0, &length)) || (fault = skip_bytes(at, stop, -1, &length)))
            return fault;
    return *at == stop ? NONE : WRONG_LENGTH;
}

static void scan_all(const uint8_t *at, const uint8_t *end, Py_ssize_t count, Scan *scan)
{
    Record record;
    for (scan->index = 0; scan->index < count; scan->index++) {
        if ((scan->fault = read_record(&at, end, scan->index, &record)))
            return;
        if (scan->index == 0 || record.timestamp_delta < scan->timestamp_delta_min)
            scan->timestamp_delta_min = record.timestamp_delta;
        if (scan->index == 0 || record.timestamp_delta > scan->timestamp_delta_max)
            scan->timestamp_delta_max = record.timestamp_delta;
        scan->without_key += record.key_length < 0;
    }
    if (at != end)
        scan->fault = TRAILING_BYTES;
}

static PyObject *scan_records(PyObject *module, PyObject *arguments)
{
    Py_buffer records;
    Py_ssize_t count;
    Scan scan = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*n", &records, &count))
        return NULL;
    const uint8_t *at = records.buf, *end = at + records.len;
    if (records.len > LARGE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        scan_all(at, end, count, &scan);
        Py_END_ALLOW_THREADS
    } else
        scan_all(at, end, count, &scan);
    PyBuffer_Release(&records);
    return Py_BuildValue("inLLn", scan.fault, scan.index, (long long)scan.timestamp_delta_min,
                         (long long)scan.timestamp_delta_max, scan.without_key);
}

typedef struct {
    Py_ssize_t index;
    Record record;
} Row;

/* What list_records looks for: records without a key, and timestamp deltas out of a range, but for one. */
typedef struct {
    int without_key;
    int64_t oldest, newest, exempt;
} Wanted;

static Py_ssize_t list_all(const uint8_t *at, const uint8_t *end, Py_ssize_t count, const Wanted *wanted, Row *rows,
                           Py_ssize_t most)
{
    Py_ssize_t found = 0;
    Record record;
    for (Py_ssize_t index = 0; index < count && found < most; index++) {
        if (read_record(&at, end, index, &record))
            break;
        int in_range = record.timestamp_delta >= wanted->oldest && record.timestamp_delta <= wanted->newest;
        if ((wanted->without_key && record.key_length < 0) || (!in_range && record.timestamp_delta != wanted->exempt))
            rows[found++] = (Row){index, record};
    }
    return found;
}

static PyObject *rows_to_list(const Row *rows, Py_ssize_t found)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < found; i++) {
        const Record *record = &rows[i].record;
        PyObject *row = Py_BuildValue("nLi", rows[i].index, (long long)record->timestamp_delta, record->key_length >= 0);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *list_records(PyObject *module, PyObject *arguments)
{
    Py_buffer records;
    Py_ssize_t count, most, found;
    long long oldest, newest, exempt;
    Wanted wanted;
    PyObject *list = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*npLLLn", &records, &count, &wanted.without_key, &oldest, &newest, &exempt, &most))
        return NULL;
    wanted.oldest = oldest, wanted.newest = newest, wanted.exempt = exempt;
    if (most > count)
        most = count;
    Row *rows = PyMem_Malloc(most > 0 ? (size_t)most * sizeof(Row) : 1);
    if (rows != NULL) {
        Py_BEGIN_ALLOW_THREADS
        found = list_all(records.buf, (const uint8_t *)records.buf + records.len, count, &wanted, rows, most);
        Py_END_ALLOW_THREADS
        list = rows_to_list(rows, found);
        PyMem_Free(rows);
    } else
        PyErr_NoMemory();
    PyBuffer_Release(&records);
    return list;
}

static PyMethodDef methods[] = {
    {"list_records", list_records, METH_VARARGS,
     "list_records(records, count, without_key, oldest, newest, exempt, most) -> [(index, timestamp_delta, has_key)]"},
    {"scan_records", scan_records, METH_VARARGS, "scan_records(records, count) -> (fault, index, min, max, without_key)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_record_scan", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__record_scan(void)
{
    return PyModule_Create(&module);
}
