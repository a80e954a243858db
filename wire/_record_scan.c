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

static int scan_record(const uint8_t **at, const uint8_t *end, Py_ssize_t index, Scan *scan)
{
    int64_t size, timestamp_delta, offset_delta, key_length, length, headers;
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
    if (!read_varint(at, stop, 10, &timestamp_delta) || !read_varint(at, stop, 5, &offset_delta))
        return BAD_VARINT;
    if (offset_delta != index)
        return WRONG_OFFSET_DELTA;
    if ((fault = skip_bytes(at, stop, -1, &key_length)) || (fault = skip_bytes(at, stop, -1, &length)))
        return fault;
    if (!read_varint(at, stop, 5, &headers))
        return BAD_VARINT;
    if (headers < 0 || headers > stop - *at)
        return BAD_SIZE;
    for (; headers > 0; headers--)
        if ((fault = skip_bytes(at, stop, 0, &length)) || (fault = skip_bytes(at, stop, -1, &length)))
            return fault;
    if (*at != stop)
        return WRONG_LENGTH;
    if (index == 0 || timestamp_delta < scan->timestamp_delta_min)
        scan->timestamp_delta_min = timestamp_delta;
    if (index == 0 || timestamp_delta > scan->timestamp_delta_max)
        scan->timestamp_delta_max = timestamp_delta;
    scan->without_key += key_length < 0;
    return NONE;
}

static void scan_all(const uint8_t *at, const uint8_t *end, Py_ssize_t count, Scan *scan)
{
    for (scan->index = 0; scan->index < count; scan->index++)
        if ((scan->fault = scan_record(&at, end, scan->index, scan)))
            return;
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

static PyMethodDef methods[] = {
    {"scan_records", scan_records, METH_VARARGS, "scan_records(records, count) -> (fault, index, min, max, without_key)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_record_scan", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__record_scan(void)
{
    return PyModule_Create(&module);
}
