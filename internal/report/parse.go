package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Parse reads a report. Parse returns CodeInvalid if the input is not a report.
func Parse(raw []byte) (api.Report, error) {
	p := &parser{}
	err := sections(raw, map[string]func(*json.Decoder) error{
		"puppet_version":        text(&p.out.Puppet),
		"status":                text(&p.out.Status),
		"environment":           text(&p.out.Environment),
		"time":                  into(&p.out.At),
		"configuration_version": value(&p.out.Version),
		"resource_statuses":     statuses(func(name string, st status) error { p.add(name, st); return nil }),
		"metrics":               p.readMetrics,
		"logs":                  list(maxLines, func(l line) { p.log = append(p.log, l.plain()) }),
	})
	if err != nil {
		return api.Report{}, tutti.Wrap(tutti.CodeInvalid, err, "this is no report of Puppet")
	}
	return p.report(), nil
}

// Find reads the part of a report about one resource. Find returns CodeInvalid if the input is not a report.
func Find(raw []byte, resource string) (st api.ReportStatus, found bool, err error) {
	err = sections(raw, map[string]func(*json.Decoder) error{
		"resource_statuses": statuses(func(name string, one status) error {
			if name == resource {
				st, found = one.plain(name), true
			}
			return nil
		}),
	})
	return st, found, tutti.Wrap(tutti.CodeInvalid, err, "this is no report of Puppet")
}

// parser collects the parts of a report that are kept.
type parser struct {
	out     api.Report
	metrics map[string]map[string]float64
	seen    int
	kept    [2]room // for failed resources, and for other resources
	log     []api.LogLine
}

type room struct{ resources, bytes int }

// The method `take` reserves room for one more resource. It returns false if there is not enough room.
func (r *room) take(size int) bool {
	if r.resources == MaxResources || r.bytes+size > maxKept {
		return false
	}
	r.resources, r.bytes = r.resources+1, r.bytes+size
	return true
}

// add counts a resource, and keeps it if anything happened to it.
func (p *parser) add(name string, st status) {
	p.seen++
	counts, outcome := &p.out.Counts, st.outcome()
	switch outcome {
	case api.ResourceFailed:
		counts.Failed++
	case api.ResourceSkipped:
		counts.Skipped++
	case api.ResourceChanged:
		counts.Changed++
	case api.ResourceOutOfSync:
		counts.OutOfSync++
	}
	if st.Corrective && (outcome == api.ResourceChanged || outcome == api.ResourceOutOfSync) {
		counts.Corrective++
	}
	if st.Restart {
		counts.FailedToRestart++
	}
	if t := st.seconds(); t > 0 {
		p.out.Slowest = append(p.out.Slowest, api.ReportTime{Name: plain(name), Seconds: t})
		p.out.Slowest = longest(p.out.Slowest, maxSlowest)
	}
	if outcome == api.ResourceUnchanged && len(st.Events) == 0 {
		return
	}
	one, kept := st.plain(name), &p.kept[1]
	if outcome == api.ResourceFailed {
		kept = &p.kept[0]
	}
	if !kept.take(size(one)) {
		p.out.LeftOut++
		return
	}
	p.out.Resources = append(p.out.Resources, one)
}

func longest(times []api.ReportTime, most int) []api.ReportTime {
	slices.SortFunc(times, func(a, b api.ReportTime) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name))
	})
	return times[:min(len(times), most)]
}

// readMetrics reads the numbers of resources and the times.
func (p *parser) readMetrics(d *json.Decoder) error {
	var in map[string]struct {
		Values [][]any `json:"values"` // name, label, number
	}
	if err := part(d, &in); err != nil {
		return err
	}
	p.metrics = map[string]map[string]float64{}
	for _, name := range []string{"resources", "time"} {
		p.metrics[name] = map[string]float64{}
		for _, v := range in[name].Values {
			if len(v) != 3 {
				return errors.New("a metric must be a name, a label and a number")
			}
			what, named := v[0].(string)
			n, number := v[2].(float64)
			if named && number {
				p.metrics[name][what] = n
			}
		}
	}
	return nil
}

// number returns one of the numbers of resources, limited to the range of a valid number.
func (p *parser) number(name string) int {
	return int(min(max(p.metrics["resources"][name], 0), math.MaxInt32))
}

// report returns the collected parts, in order.
func (p *parser) report() api.Report {
	c := &p.out.Counts
	c.Total, c.Restarted = max(p.seen, p.number("total")), p.number("restarted")
	c.Unchanged = c.Total - c.Failed - c.Skipped - c.Changed - c.OutOfSync
	for name, seconds := range p.metrics["time"] {
		if seconds > 0 {
			p.out.Times = append(p.out.Times, api.ReportTime{Name: plain(name), Seconds: seconds})
		}
	}
	p.out.Times = longest(p.out.Times, maxTimes)
	slices.SortFunc(p.out.Resources, func(a, b api.ReportStatus) int {
		return cmp.Or(cmp.Compare(a.Place.File, b.Place.File), cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Resource, b.Resource))
	})
	for i := range p.out.Resources {
		explain(&p.out.Resources[i], p.log)
	}
	return p.out
}

// sections reads those members of an object for which there is a reader. Each member may occur only once.
func sections(raw []byte, read map[string]func(*json.Decoder) error) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	seen := map[string]bool{}
	err := members(d, func(name string) error {
		f := read[name]
		if f == nil {
			var other json.RawMessage
			return d.Decode(&other)
		}
		if seen[name] {
			return tutti.Errorf(tutti.CodeInvalid, "%s is there twice", name)
		}
		seen[name] = true
		return tutti.Wrap(tutti.CodeInvalid, f(d), "%s", name)
	})
	if err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end of the report")
	}
	return nil
}

// The function `members` calls f with the name of each member of the next object, and f reads the value. For null,
// members makes no call.
func members(d *json.Decoder, f func(name string) error) error {
	if more, err := open(d, '{'); err != nil || !more {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // the decoder allows only a string here
		if err := f(name); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// The function `open` reads the beginning of a list or an object. It returns false if the value is null.
func open(d *json.Decoder, want json.Delim) (bool, error) {
	t, err := d.Token()
	switch {
	case err != nil:
		return false, err
	case t == nil:
		return false, nil
	case t != want:
		return false, tutti.Errorf(tutti.CodeInvalid, "it does not begin with %s", want)
	}
	return true, nil
}

// The function `list` reads a list and calls f with the first few elements.
func list[T any](most int, f func(T)) func(*json.Decoder) error {
	return func(d *json.Decoder) error {
		if more, err := open(d, '['); err != nil || !more {
			return err
		}
		for n := 0; d.More(); n++ {
			if n >= most {
				var rest json.RawMessage
				if err := d.Decode(&rest); err != nil {
					return err
				}
				continue
			}
			var one T
			if err := part(d, &one); err != nil {
				return err
			}
			f(one)
		}
		_, err := d.Token()
		return err
	}
}

// The function `part` decodes the next value if the value is not larger than maxPart.
func part(d *json.Decoder, to any) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return err
	}
	if len(raw) > maxPart {
		return tutti.Errorf(tutti.CodeInvalid, "one part has %d bytes, at most %d", len(raw), maxPart)
	}
	return json.Unmarshal(raw, to)
}

func into(to any) func(*json.Decoder) error {
	return func(d *json.Decoder) error { return part(d, to) }
}

func text(to *string) func(*json.Decoder) error {
	return func(d *json.Decoder) error {
		var s string
		err := part(d, &s)
		*to = plain(s)
		return err
	}
}

func value(to *string) func(*json.Decoder) error {
	return func(d *json.Decoder) error {
		var raw json.RawMessage
		err := part(d, &raw)
		*to = valueText(raw)
		return err
	}
}

// The function `sane` returns the time. If JSON cannot represent the time, it returns the zero time.
func sane(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
