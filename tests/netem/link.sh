# shellcheck shell=bash
# A pstrain link text (`1.delay=1ms 2.delay=100ms 2.jitter=5ms`) in the words of tc netem.
# For sourcing; this is the only place that knows both grammars.

declare -A LINK=()

link_fail() {
    echo "link: $*" >&2
    return 2
}

# link_read TEXT NODE DIRECTION: what TEXT says about one node's link in one direction, into the
# table LINK. NODE is a worker's number or `server`; up leads to the server, down away from it.
# Later items win over earlier ones, and those for one worker over those for all.
link_read() {
    local text=$1 node=$2 direction=$3 item key value who way rank
    local -A ranks=()
    LINK=()
    [[ $text != none ]] || return 0
    for item in $text; do
        if [[ ! $item =~ ^((all|server|[1-9][0-9]*)\.)?((up|down)\.)?([a-z-]+)=([^=]+)$ ]]; then
            link_fail "'$item' is not [WHO.][DIRECTION.]KEY=VALUE, for example 2.delay=100ms"
            return
        fi
        who=${BASH_REMATCH[2]:-all} way=${BASH_REMATCH[4]}
        key=${BASH_REMATCH[5]} value=${BASH_REMATCH[6]}
        link_check "$item" "$key" "$value" || return
        # Without a direction: a worker's egress, and both ways of the link at the server.
        if [[ -z $way && $who == server ]]; then way=$direction; fi
        if [[ ${way:-up} != "$direction" ]]; then continue; fi
        rank=1
        if [[ $who == all ]]; then
            if [[ $node == server ]]; then continue; fi
            rank=0
        elif [[ $who != "$node" ]]; then
            continue
        fi
        if ((rank >= ${ranks[$key]:-0})); then LINK[$key]=$value ranks[$key]=$rank; fi
    done
}

# link_check ITEM KEY VALUE: refuses what netem cannot do or would take for something else.
link_check() {
    local number='[0-9]+([.][0-9]+)?'
    case $2 in
    delay | jitter)
        [[ $3 =~ ^$number(us|ms|s)$ ]] || link_fail "'$1': a time is a number and us, ms or s" ;;
    distribution)
        [[ $3 =~ ^(uniform|normal|pareto)$ ]] ||
            link_fail "'$1': a distribution is uniform, normal or pareto" ;;
    rate)
        [[ $3 =~ ^$number([kmg]?bit)$ ]] ||
            link_fail "'$1': a rate is a number and bit, kbit, mbit or gbit" ;;
    loss)
        [[ $3 =~ ^$number%$ ]] || link_fail "'$1': a loss is a percentage, for example 1%" ;;
    slow-start)
        [[ $3 == on ]] || link_fail "'$1': the kernel's TCP always has slow start" ;;
    outage)
        link_fail "'$1': netem has no outages; simulate and shaped real time do" ;;
    *)
        link_fail "'$1': no such key; there are delay, jitter, distribution, rate and loss" ;;
    esac
}

# link_netem EXTRA_MS: the table LINK as arguments of `tc qdisc ... netem`, its delay made EXTRA_MS
# longer; nothing where nothing is asked for.
link_netem() {
    local extra=${1:-0} words=() delay
    delay=$(link_ms "${LINK[delay]:-0ms}" "$extra")
    if [[ -n ${LINK[delay]:-}${LINK[jitter]:-} || $extra != 0 ]]; then
        words+=(delay "${delay}ms")
        if [[ -n ${LINK[jitter]:-} ]]; then
            words+=("${LINK[jitter]}")
            # netem's jitter is uniform unless a table says otherwise.
            case ${LINK[distribution]:-uniform} in
            uniform) ;;
            *) words+=(distribution "${LINK[distribution]}") ;;
            esac
        fi
    fi
    if [[ -n ${LINK[loss]:-} ]]; then words+=(loss random "${LINK[loss]}"); fi
    if [[ -n ${LINK[rate]:-} ]]; then words+=(rate "${LINK[rate]}"); fi
    echo "${words[*]}"
}

# link_ms TIME...: the sum of times (a bare number is milliseconds), in milliseconds.
link_ms() {
    printf '%s\n' "$@" | awk '
        /ms$/ { sum += $1; next }
        /us$/ { sum += $1 / 1000; next }
        /s$/  { sum += $1 * 1000; next }
              { sum += $1 }
        END { printf "%.12g\n", sum }'
}

# link_send_ms BYTES: how long the table LINK's rate takes for BYTES, in milliseconds.
link_send_ms() {
    awk -v bytes="$1" -v rate="${LINK[rate]:-0}" 'BEGIN {
        unit = 1
        if (rate ~ /kbit$/) unit = 1e3
        if (rate ~ /mbit$/) unit = 1e6
        if (rate ~ /gbit$/) unit = 1e9
        print (rate + 0 > 0 ? bytes * 8 * 1000 / (rate * unit) : 0)
    }'
}
