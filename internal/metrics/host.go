package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// hostFor is how old a sample may be. An older sample means that the disk or the bus does not answer.
const hostFor = time.Minute

// Host is what the server's machine, bus and files say. The server takes a sample every few seconds outside of scrapes,
// because a disk that hangs must not make a scrape wait. Zero pointers mean that the number is not known.
type Host struct {
	At              time.Time
	DiskFree        *uint64
	DiskReserve     *uint64
	LogBytes        *uint64
	BlobBytes       *uint64
	SnapshotAt      time.Time // zero: there is no snapshot yet
	Connections     *int
	SlowConnections *int64
	Certificates    map[string]time.Time // what → when it ends
	Reports         map[string]Reports   // by destination
}

// Reports are the numbers of a destination of reports, as `tutti server reports list` shows them.
type Reports struct{ Sent, Dropped, Waiting, Parked int }

// SetHost replaces the sample.
func (m *Meters) SetHost(h Host) { m.host.now.Store(&h) }

// host collects the last sample.
type host struct {
	now          atomic.Pointer[Host]
	destinations []string
	descs        map[string]*prometheus.Desc
}

func newHost(destinations []string) *host {
	h := &host{destinations: destinations, descs: map[string]*prometheus.Desc{}}
	for _, d := range []struct {
		name, help string
		labels     []string
	}{
		{"tutti_disk_free_bytes", "Free space of the disk with the server's directory.", nil},
		{"tutti_disk_reserve_bytes", "Space that new work leaves free. With less free space no run begins.", nil},
		{"tutti_log_bytes", "Size of the log.", nil},
		{"tutti_blob_bytes", "Size of the stored content: code, reports, logs, records, snapshots.", nil},
		{"tutti_snapshot_age_seconds", "Age of the latest snapshot. It is missing until there is a snapshot.", nil},
		{"tutti_bus_connections", "Connections to the bus: nodes, and the server's own.", nil},
		{"tutti_bus_slow_total", "Connections that the bus closed because their client did not read.", nil},
		{"tutti_certificate_expiry_timestamp_seconds", "When a certificate of the server ends.", []string{"what"}},
		{"tutti_reports_out_total", "Reports of runs that left the server's queue for a destination. The number outlives a restart.", []string{"destination", "result"}},
		{"tutti_reports_out_waiting", "Reports that wait for a destination.", []string{"destination"}},
		{"tutti_reports_out_parked", "Reports that a destination refused.", []string{"destination"}},
	} {
		h.descs[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	return h
}

// Describe implements prometheus.Collector.
func (h *host) Describe(out chan<- *prometheus.Desc) {
	for _, d := range h.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (h *host) Collect(out chan<- prometheus.Metric) {
	now := h.now.Load()
	if now == nil || time.Since(now.At) > hostFor {
		return
	}
	put := func(name string, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(h.descs[name], kind, value, labels...)
	}
	for name, value := range map[string]*uint64{
		"tutti_disk_free_bytes": now.DiskFree, "tutti_disk_reserve_bytes": now.DiskReserve,
		"tutti_log_bytes": now.LogBytes, "tutti_blob_bytes": now.BlobBytes,
	} {
		if value != nil {
			put(name, prometheus.GaugeValue, float64(*value))
		}
	}
	if !now.SnapshotAt.IsZero() {
		put("tutti_snapshot_age_seconds", prometheus.GaugeValue, age(time.Now(), now.SnapshotAt))
	}
	if now.Connections != nil {
		put("tutti_bus_connections", prometheus.GaugeValue, float64(*now.Connections))
	}
	if now.SlowConnections != nil {
		put("tutti_bus_slow_total", prometheus.CounterValue, float64(*now.SlowConnections))
	}
	for what, ends := range now.Certificates {
		put("tutti_certificate_expiry_timestamp_seconds", prometheus.GaugeValue, float64(ends.Unix()), what)
	}
	for _, to := range h.destinations {
		r, known := now.Reports[to]
		if !known {
			continue
		}
		put("tutti_reports_out_total", prometheus.CounterValue, float64(r.Sent), to, "sent")
		put("tutti_reports_out_total", prometheus.CounterValue, float64(r.Dropped), to, "dropped")
		put("tutti_reports_out_waiting", prometheus.GaugeValue, float64(r.Waiting), to)
		put("tutti_reports_out_parked", prometheus.GaugeValue, float64(r.Parked), to)
	}
}
