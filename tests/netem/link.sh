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

# link_netem EXTRA_US: the table LINK as arguments of `tc qdisc ... netem`, its delay made EXTRA_US
# microseconds longer; nothing where nothing is asked for.
link_netem() {
    local extra=$1 words=() delay=${LINK[delay]:-0ms}
    if ((extra > 0)); then
        link_us "$delay"
        delay=$((REPLY + extra))us
    fi
    if [[ -n ${LINK[delay]:-}${LINK[jitter]:-} ]] || ((extra > 0)); then
        words+=(delay "$delay")
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

# The next three leave whole numbers in REPLY and start no process: a machine may be slow at that.

# link_scaled NUMBER DIGITS: a decimal number times 10^DIGITS.
link_scaled() {
    local whole=${1%%.*} fraction=''
    if [[ $1 == *.* ]]; then fraction=${1#*.}; fi
    fraction+=000000000
    REPLY=$((10#0$whole * 10 ** $2 + 10#0${fraction:0:$2}))
}

# link_us TIME: in microseconds.
link_us() {
    case $1 in
    *us) link_scaled "${1%us}" 0 ;;
    *ms) link_scaled "${1%ms}" 3 ;;
    *) link_scaled "${1%s}" 6 ;;
    esac
}

# link_send_us BYTES: how long the table LINK's rate takes for BYTES, in microseconds.
link_send_us() {
    local rate=${LINK[rate]:-0bit}
    case $rate in
    *kbit) link_scaled "${rate%kbit}" 3 ;;
    *mbit) link_scaled "${rate%mbit}" 6 ;;
    *gbit) link_scaled "${rate%gbit}" 9 ;;
    *) link_scaled "${rate%bit}" 0 ;;
    esac
    REPLY=$((REPLY > 0 ? $1 * 8 * 1000000 / REPLY : 0))
}
