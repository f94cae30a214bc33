package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisSet stores the same value under many keys, for an hour.
func redisSet(ctx context.Context, at, prefix string, keys []string, value string) error {
	client := redis.NewClient(&redis.Options{Addr: at})
	defer client.Close()
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			pipe.Set(ctx, prefix+key, value, time.Hour)
		}
		return nil
	})
	return err
}

// redisAsk sends one command on a connection of its own and returns the response:
// a line, or the content of a bulk string.
func redisAsk(ctx context.Context, at string, args ...string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	var command strings.Builder
	fmt.Fprintf(&command, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, command.String()); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	switch line[0] {
	case '$':
		size, err := strconv.Atoi(line[1:])
		if err != nil || size < 0 {
			return "", err
		}
		content := make([]byte, size)
		_, err = io.ReadFull(reader, content)
		return string(content), err
	case '-':
		return "", fmt.Errorf("redis: %s", line[1:])
	default:
		return line[1:], nil
	}
}

// redisMemory returns used_memory of INFO memory, in bytes.
func redisMemory(ctx context.Context, at string) (int64, error) {
	info, err := redisAsk(ctx, at, "INFO", "memory")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("redis at %s: INFO memory has no used_memory", at)
}
