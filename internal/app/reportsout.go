package app

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/doctor"
	"github.com/tutti-project/tutti/internal/outward"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/serverdir"
)

// sendReports sends the reports of ended runs to the destinations in reports.yaml, until ctx ends. The fleet does not
// wait for the destinations, and an error of one of them does not end the server.
func (s *Server) sendReports(ctx context.Context, group *errgroup.Group, core *server.Server) {
	for _, to := range s.destinations {
		sender, err := outward.New(to, outward.Options{Dir: s.opts.Dir, Source: core.Ended(), Producer: s.config.Host, Logger: s.opts.Logger})
		if err != nil {
			s.opts.Logger.Error("a destination gets no reports until the server starts again", "for", to.Name, "error", err)
			continue
		}
		group.Go(func() error { sender.Run(ctx); return nil })
	}
}

// maxReason bounds the error of a destination, in bytes.
const maxReason = 500

// reportsOut implements cli.ReportsOut.
type reportsOut struct{}

func readDestinations(dir string) ([]outward.Destination, error) {
	if _, err := serverdir.ReadConfig(dir); err != nil {
		return nil, err
	}
	return outward.ReadConfig(dir)
}

func (reportsOut) List(dir string) ([]cli.ReportDestination, error) {
	found, err := readDestinations(dir)
	out := []cli.ReportDestination{}
	for _, d := range found {
		st, parked, err := outward.ReadStatus(dir, d.Name)
		if err != nil { // the other destinations work
			st.Error = err.Error()
		}
		one := cli.ReportDestination{
			Name: d.Name, Kind: d.Kind, Address: d.URL.Scheme + "://" + d.URL.Host, Sent: st.Sent, Waiting: st.Waiting, Dropped: st.Dropped,
			SentAt: st.SentAt, Error: st.Error, Since: st.Since,
		}
		for _, p := range parked {
			one.Parked = append(one.Parked, cli.ParkedReport{Run: p.Run, Node: p.Node, Reason: p.Reason})
		}
		out = append(out, one)
	}
	return out, err
}

func (reportsOut) Check(ctx context.Context, dir string) ([]cli.CheckedDestination, error) {
	found, err := readDestinations(dir)
	out := []cli.CheckedDestination{}
	for _, d := range found {
		one := cli.CheckedDestination{Name: d.Name}
		var err error
		if one.Text, err = outward.Check(ctx, d); err != nil {
			one.Error = tutti.InLine(tutti.Plain(err.Error(), maxReason))
		}
		out = append(out, one)
	}
	return out, err
}

func (reportsOut) Retry(dir, name string) (int, error) {
	found, err := readDestinations(dir)
	if err != nil {
		return 0, err
	}
	for _, d := range found {
		if d.Name == name {
			return outward.Retry(dir, name)
		}
	}
	return 0, tutti.Errorf(tutti.CodeNotFound, "no destination %q in %s; see: tutti server reports list", name, outward.ConfigFile)
}

// doctorReports returns what the doctor needs to know about the destinations of a server.
func doctorReports(dir string) ([]doctor.Reports, error) {
	found, err := reportsOut{}.List(dir)
	var out []doctor.Reports
	for _, d := range found {
		out = append(out, doctor.Reports{Name: d.Name, Waiting: d.Waiting, Dropped: d.Dropped, Parked: len(d.Parked), Error: d.Error, Since: d.Since})
	}
	return out, err
}
