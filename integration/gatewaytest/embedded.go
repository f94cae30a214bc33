package gatewaytest

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// embeddedPassword opens the embedded Redis of the gateways that are built here.
const embeddedPassword = "of-integration-tests-only"

// EmbeddedURL returns the address of the Redis inside the process of the gateway, empty if there is
// none. It is the one of the process's listening sockets that takes the password.
func (g *Gateway) EmbeddedURL() string {
	for _, port := range listeningPorts(g.cmd.Process.Pid) {
		host := fmt.Sprintf("127.0.0.1:%d", port)
		if address := "redis://:" + embeddedPassword + "@" + host; host != g.ListenAddr && "http://"+host != g.AdminURL && answersPing(address) {
			return address
		}
	}
	return ""
}

func answersPing(address string) bool {
	options, err := redis.ParseURL(address)
	if err != nil {
		return false
	}
	options.MaxRetries, options.DialerRetries, options.DialTimeout, options.ReadTimeout = -1, 1, sweepTimeout, sweepTimeout
	client := redis.NewClient(options)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	return client.Ping(ctx).Err() == nil
}

// listeningPorts returns the TCP ports at 127.0.0.1 on which a process listens (proc(5), /proc/net/tcp).
// It returns nil where there is no /proc.
func listeningPorts(pid int) (ports []int) {
	inodes := socketsOf(pid)
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(table)) {
		const stateListen, loopback = "0A", "0100007F"
		column := strings.Fields(line)
		if len(column) < 10 || column[3] != stateListen || !inodes[column[9]] {
			continue
		}
		host, port, _ := strings.Cut(column[1], ":")
		number, err := hex.DecodeString(port)
		if err == nil && len(number) == 2 && host == loopback {
			ports = append(ports, int(number[0])<<8|int(number[1]))
		}
	}
	return ports
}

// socketsOf returns the inodes of the sockets of a process.
func socketsOf(pid int) map[string]bool {
	inodes := make(map[string]bool)
	links, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				inodes[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return inodes
}
