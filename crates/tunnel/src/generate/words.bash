
# bash ends words at `:`, `=` and `@`, which addresses and flags with values contain. The program gets
# whole words, and bash the part that follows the last of these characters.
_tunnel_complete() {
    local words=() line=${COMP_LINE-} word=-1 joined=false rest piece before head i
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        piece=${COMP_WORDS[i]}
        rest=${line#"${line%%[![:space:]]*}"}
        if [[ $i -gt 0 && $rest == "$line" && ( $piece =~ ^[@=:]+$ || ${before-} =~ ^[@=:]+$ ) ]]; then
            joined=true
        else
            joined=false
            words[++word]=
        fi
        line=${rest#"$piece"}
        before=$piece
        if [[ $i -eq $COMP_CWORD ]]; then
            # Nothing behind the cursor counts.
            [[ $piece =~ ^[@=:]+$ ]] || piece=$2
            words[word]+=$piece
            break
        fi
        words[word]+=$piece
    done
    local current=${words[word]}
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$word
    _clap_complete_tunnel "$1" "$current" "${3-}"
    if [[ $joined == true ]]; then
        head=${current%"${current##*[@=:]}"}
        COMPREPLY=("${COMPREPLY[@]#"$head"}")
    fi
}
