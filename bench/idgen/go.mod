module snowgate/bench/idgen

go 1.26.0

require (
	github.com/bwmarrin/snowflake v0.3.0
	github.com/godruoyi/go-snowflake v0.0.2
	github.com/holdno/snowFlakeByGo v1.0.0
	github.com/muyo/sno v1.2.1
	github.com/rs/xid v1.6.0
	github.com/sony/sonyflake/v2 v2.2.0
	snowgate v0.0.0
)

replace snowgate => ../..
