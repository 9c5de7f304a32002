package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PuppetDB returns the content of PuppetDB's command `store report`, version 8.
func PuppetDB(raw []byte, of Of) ([]byte, error) {
	r, err := read(raw, of)
	if err != nil {
		return nil, invalid(err)
	}
	environment, _ := r.get("environment").(string)
	if environment == "" {
		return nil, invalid(errors.New("it has no environment"))
	}
	begin, err := when(r.get("time"))
	if err != nil {
		return nil, invalid(err)
	}
	resources, noop, err := resources(r)
	if err != nil {
		return nil, invalid(err)
	}
	logs, err := logs(r)
	if err != nil {
		return nil, invalid(err)
	}
	if said, is := r.get("noop").(bool); is {
		noop = said
	}
	out, err := encode(object{
		{"certname", string(of.Node)},
		{"job_id", r.get("job_id")},
		{"puppet_version", r.get("puppet_version")},
		{"report_format", r.get("report_format")},
		{"configuration_version", rubyText(r.get("configuration_version"))},
		{"producer_timestamp", wireTime(of.At)},
		{"start_time", wireTime(begin)},
		{"end_time", wireTime(begin.Add(lasted(r)))},
		{"environment", environment},
		{"transaction_uuid", r.get("transaction_uuid")},
		{"status", r.get("status")},
		{"noop", noop},
		{"noop_pending", r.get("noop_pending")},
		{"corrective_change", r.get("corrective_change")},
		{"logs", logs},
		{"metrics", metrics(r)},
		{"resources", resources},
		{"catalog_uuid", r.get("catalog_uuid")},
		{"code_id", r.get("code_id")},
		{"cached_catalog_status", r.get("cached_catalog_status")},
		{"producer", of.Producer},
	})
	return out, invalid(err)
}

// The function `resources` returns the resources that have events or were skipped. The result noop is true if all
// events are of noop, and there is at least one.
func resources(r object) (out list, noop bool, err error) {
	enforced := false
	out = list{}
	for _, st := range objects(r.get("resource_statuses")) {
		events := list{}
		for _, e := range objects(st.get("events")) {
			at, err := when(e.get("time"))
			if err != nil {
				return nil, false, err
			}
			if e.get("status") == "noop" {
				noop = true
			} else {
				enforced = true
			}
			events = append(events, object{
				{"status", e.get("status")}, {"timestamp", wireTime(at)}, {"name", e.get("name")}, {"property", e.get("property")},
				{"new_value", rubyText(e.get("desired_value"))}, {"old_value", rubyText(e.get("previous_value"))},
				{"corrective_change", e.get("corrective_change")}, {"message", e.get("message")},
			})
		}
		if len(events) == 0 && st.get("skipped") != true {
			continue
		}
		at, err := when(st.get("time"))
		if err != nil {
			return nil, false, err
		}
		out = append(out, object{
			{"skipped", st.get("skipped")}, {"timestamp", wireTime(at)}, {"resource_type", st.get("resource_type")},
			{"resource_title", rubyText(st.get("title"))}, {"file", st.get("file")}, {"line", st.get("line")},
			{"containment_path", st.get("containment_path")}, {"corrective_change", st.get("corrective_change")}, {"events", events},
		})
	}
	return out, noop && !enforced, nil
}

func logs(r object) (list, error) {
	out := list{}
	for _, l := range objects(r.get("logs")) {
		at, err := when(l.get("time"))
		if err != nil {
			return nil, err
		}
		tags, is := l.get("tags").(list)
		if !is {
			tags = list{}
		}
		out = append(out, object{
			{"file", l.get("file")}, {"line", l.get("line")}, {"level", l.get("level")}, {"message", l.get("message")},
			{"source", l.get("source")}, {"tags", tags}, {"time", wireTime(at)},
		})
	}
	return out, nil
}

func metrics(r object) list {
	out := list{}
	for _, m := range objects(r.get("metrics")) {
		for _, v := range triples(m) {
			out = append(out, object{{"category", m.get("name")}, {"name", v[0]}, {"value", v[2]}})
		}
	}
	return out
}

// The function `triples` returns the values of a metric: name, label and number. Puppet sorts them by label.
func triples(metric object) (out []list) {
	values, _ := metric.get("values").(list)
	for _, v := range values {
		if one, is := v.(list); is && len(one) == 3 {
			out = append(out, one)
		}
	}
	slices.SortStableFunc(out, func(a, b list) int { return cmp.Compare(rubyText(a[1]), rubyText(b[1])) })
	return out
}

// The function `metric` returns one number of a report, or nil.
func metric(r object, category, name string) any {
	all, _ := r.get("metrics").(object)
	of, _ := all.get(category).(object)
	for _, v := range triples(of) {
		if v[0] == name {
			return v[2]
		}
	}
	return nil
}

// lasted returns the duration of the run, as the report says. The function does not round the number as a float.
func lasted(r object) time.Duration {
	const longest = 1000 * time.Hour
	n, _ := metric(r, "time", "total").(json.Number)
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || f < 0 || f > longest.Seconds() {
		return 0
	}
	ns, _ := new(big.Float).Mul(new(big.Float).SetFloat64(f), big.NewFloat(1e9)).Int64()
	return time.Duration(ns)
}

func when(v any) (time.Time, error) {
	text, _ := v.(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err == nil && (at.UTC().Year() < 1 || at.UTC().Year() > 9999) {
		err = errors.New("a time is outside of all years")
	}
	return at, err
}

// wireTime formats a time as PuppetDB's commands have it: in milliseconds, cut off.
func wireTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

// rubyText returns the text that Ruby's method `to_s` makes from a value.
func rubyText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return inspect(v)
}

// inspect returns the text that Ruby's method `inspect` makes from a value.
func inspect(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return inspectText(v)
	case list:
		parts := make([]string, len(v))
		for i, one := range v {
			parts[i] = inspect(one)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case object:
		parts := make([]string, len(v))
		for i, m := range v {
			parts[i] = inspectText(m.name) + "=>" + inspect(m.value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return string(v)
	}
	return ""
}

func inspectText(s string) string {
	escapes := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\t': `\t`, '\r': `\r`, '\a': `\a`, '\b': `\b`, '\v': `\v`, '\f': `\f`, 0x1b: `\e`}
	var out strings.Builder
	out.WriteByte('"')
	for i, c := range s {
		next := s[i+len(string(c)):]
		switch short := escapes[c]; {
		case short != "":
			out.WriteString(short)
		case c == '#' && next != "" && strings.ContainsRune("{$@", rune(next[0])):
			out.WriteString(`\#`)
		case !strconv.IsPrint(c) && c < 0x80:
			out.WriteString(`\x` + strings.ToUpper(strconv.FormatInt(int64(c)+0x100, 16)[1:]))
		case !strconv.IsPrint(c) && c < 0x10000:
			out.WriteString(`\u` + strings.ToUpper(strconv.FormatInt(int64(c)+0x10000, 16)[1:]))
		case !strconv.IsPrint(c):
			out.WriteString(`\u{` + strings.ToUpper(strconv.FormatInt(int64(c), 16)) + "}")
		default:
			out.WriteRune(c)
		}
	}
	return out.String() + `"`
}
