package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tutti-project/tutti"
)

// Relay creates the interface `tap`. Relay copies packets from `port` to `tap` and back, with the delay
// and loss in `slow`. Each frame begins with a header of the kernel (virtio_net_hdr). The header says
// which checksums and segments the kernel has left to the interface. Relay returns when ctx ends or an
// interface disappears. After Relay has returned, `tap` no longer exists.
func Relay(ctx context.Context, port, tap string, slow Slow) error {
	if err := slow.Validate(); err != nil {
		return err
	}
	line, err := openPort(port)
	if err != nil {
		return tutti.Wrap("", err, "open %s", port)
	}
	defer line.Close()
	stand, err := openTap(tap, port)
	if err != nil {
		return tutti.Wrap("", err, "make %s", tap)
	}
	defer stand.Close()
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() {
		line.Close()
		stand.Close()
	})
	defer stop()
	group.Go(func() error { return slow.pass(line, stand) })
	group.Go(func() error { return slow.pass(stand, line) })
	return group.Wait()
}

const (
	// the kernel's header, the Ethernet header, and the largest packet before segmentation
	maxFrame   = 10 + 14 + 1<<16
	maxWaiting = 10_000 // number of frames that can wait. If more frames arrive, they get lost
)

type frame struct {
	due   time.Time
	bytes []byte
}

// The method `pass` copies frames in one direction until `from` is closed.
func (s Slow) pass(from, to *os.File) error {
	waiting := make(chan frame, maxWaiting)
	var group errgroup.Group
	group.Go(func() error {
		for f := range waiting {
			<-time.After(time.Until(f.due))
			_, _ = to.Write(f.bytes) // if the interface does not accept a packet, the packet is lost
		}
		return nil
	})
	err := s.read(from, waiting)
	close(waiting)
	return errors.Join(err, group.Wait())
}

func (s Slow) read(from *os.File, into chan<- frame) error {
	buf := make([]byte, maxFrame)
	for {
		n, err := from.Read(buf)
		if errors.Is(err, unix.ENETDOWN) {
			continue // the interface will come up again
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", from.Name(), err)
		}
		if rand.Float64() < s.Loss {
			continue
		}
		select {
		case into <- frame{time.Now().Add(s.Delay), bytes.Clone(buf[:n])}:
		default:
		}
	}
}

// openPort opens an interface to read all packets that arrive on it.
func openPort(name string) (*os.File, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	const every = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: i.Index}),
	)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openTap creates an interface that exists as long as the file is open. The packets of this interface may be as large
// as the packets of the interface with the name `like`.
func openTap(name, like string) (*os.File, error) {
	other, err := net.InterfaceByName(like)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = setMTU(request, other.MTU)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

func setMTU(request *unix.Ifreq, mtu int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request.SetUint32(uint32(mtu))
	return unix.IoctlIfreq(fd, unix.SIOCSIFMTU, request)
}
