package convert

import (
	"encoding/json"
	"regexp"
	"strconv"
)

// Foreman returns the body of a `POST /api/config_reports`.
func Foreman(raw []byte, of Of) ([]byte, error) {
	r, err := read(raw, of)
	if err != nil {
		return nil, invalid(err)
	}
	begin, err := when(r.get("time"))
	if err != nil {
		return nil, invalid(err)
	}
	numbers := object{}
	for _, m := range objects(r.get("metrics")) {
		name, is := m.get("name").(string)
		if !is {
			continue
		}
		of := object{}
		for _, v := range triples(m) {
			of.set(rubyText(v[0]), v[2])
		}
		numbers.set(name, of)
	}
	out, err := encode(object{{"config_report", object{
		{"host", string(of.Node)},
		{"reported_at", begin.UTC().Format("2006-01-02 15:04:05 UTC")},
		{"status", foremanStatus(r)},
		{"metrics", numbers},
		{"logs", foremanLogs(r)},
	}}})
	return out, invalid(err)
}

var (
	ofPuppet    = regexp.MustCompile(`(?m)Puppet$`)
	catalogDone = regexp.MustCompile(`(?m)^Finished catalog run in \d+.\d+ seconds$`)
)

// foremanStatus returns the six numbers by which Foreman judges a host.
func foremanStatus(r object) object {
	number := func(category, name string) int64 {
		n, _ := metric(r, category, name).(json.Number)
		f, err := strconv.ParseFloat(string(n), 64)
		if err != nil || f < 0 || f > 1<<31 {
			return 0
		}
		return int64(f)
	}
	applied, restarted := number("changes", "total"), number("resources", "restarted")
	failed, restarts := number("resources", "failed"), number("resources", "failed_to_restart")
	skipped, pending := number("resources", "skipped"), number("events", "noop")
	all, _ := r.get("logs").(list)
	// skipped resources that have no message do not count
	if skipped > 0 && applied+restarted+failed+restarts+pending == int64(len(all)) {
		skipped = 0
	}
	if r.get("status") == "failed" { // a run without a catalog has no metrics
		failed++
	}
	for _, l := range objects(all) {
		if source, _ := l.get("source").(string); l.get("level") == "err" && ofPuppet.MatchString(source) {
			failed++
		}
	}
	return object{
		{"applied", applied}, {"restarted", restarted}, {"failed", failed}, {"failed_restarts", restarts}, {"skipped", skipped}, {"pending", pending},
	}
}

func foremanLogs(r object) list {
	out := list{}
	for _, l := range objects(r.get("logs")) {
		message, _ := l.get("message").(string)
		if l.get("level") == "debug" || catalogDone.MatchString(message) {
			continue
		}
		out = append(out, object{{"log", object{
			{"sources", object{{"source", l.get("source")}}}, {"messages", object{{"message", l.get("message")}}}, {"level", l.get("level")},
		}}})
	}
	return out
}
